# GRPO as the paper runs it, alone: token ratio, clip-higher, KL to the start (k3). Plug-ins go behind it.
ratio, average, clip_low, clip_high, beta = 'token', 'token', 0.2, 0.3, 0.01
pruning, adaptive_rollouts, greso, dynamic_sampling = 'none', False, False, False
