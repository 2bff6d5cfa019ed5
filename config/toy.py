# The toy at the level where methods differ (two CPU cores, three minutes; --toy_level=1 is for a quick look).
#   python train.py config/toy.py config/dapo.py config/fastrl.py --tau=0.6
dataset, init_from, toy_level = 'toy_geo', 'toy', 2
out_dir = 'out/toy'
