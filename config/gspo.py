# GSPO: one ratio a sequence, each counts the same, no KL; its token variant: --ratio=sequence_token
ratio, average, clip_low, clip_high, beta = 'sequence', 'seq', 3e-4, 4e-4, 0.0
pruning, adaptive_rollouts, greso, dynamic_sampling = 'none', False, False, False
