# The toy, as train.py runs it by default; harder with --toy_level=2 (two CPU cores, two minutes).
#   python train.py config/toy.py config/dapo.py config/fastrl.py --tau=0.6
dataset = 'toy_geo'
init_from = 'toy'
out_dir = 'out/toy'
