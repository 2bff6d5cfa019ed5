# GRPO as the paper runs it, alone: token ratio, clip-higher 0.2 / 0.3, KL to the start (k3).
#   python train.py config/toy.py config/grpo.py          add config/fastrl.py, cppo.py or greso.py behind it
ratio, average, beta = 'token', 'token', 0.01
clip_low, clip_high = 0.2, 0.3
pruning, adaptive_rollouts, greso, dynamic_sampling = 'none', False, False, False
