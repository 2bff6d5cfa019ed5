# GRPO as the paper runs it, alone: token ratio, clip-higher 0.2 / 0.3, KL to the start (k3).
#   python train.py config/toy.py config/grpo.py          add config/fastrl.py, cppo.py or greso.py behind it
ratio = 'token'
clip_low = 0.2
clip_high = 0.3
average = 'token'
beta = 0.01
dynamic_sampling = False
pruning = 'none'
adaptive_rollouts = False
greso = False
