# DAPO: replaces questions without signal, no KL; optional: --overlong_buffer=N (soft), --mask_truncated
ratio, average, clip_low, clip_high, beta = 'token', 'token', 0.2, 0.28, 0.0
pruning, adaptive_rollouts, greso, dynamic_sampling = 'none', False, False, True
