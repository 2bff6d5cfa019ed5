# DAPO, alone: token ratio, clip-higher 0.2 / 0.28, no KL, questions without signal are replaced.
#   optional: --overlong_buffer=N (soft punishment of long answers), --mask_truncated
ratio, average, beta = 'token', 'token', 0.0
clip_low, clip_high = 0.2, 0.28
pruning, adaptive_rollouts, greso, dynamic_sampling = 'none', False, False, True
