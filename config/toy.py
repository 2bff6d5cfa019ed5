out_dir, init_from, dataset, toy_level = 'out/toy', 'toy', 'toy_geo', 2  # where methods differ; a minute
