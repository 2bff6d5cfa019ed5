# GSPO, alone: one ratio a sequence, clip 3e-4 / 4e-4, no KL, every sequence counts the same.
#   its token variant (same gradient as long as a sequence has one advantage): --ratio=sequence_token
ratio, average, beta = 'sequence', 'seq', 0.0
clip_low, clip_high = 3e-4, 4e-4
pruning, adaptive_rollouts, greso, dynamic_sampling = 'none', False, False, False
