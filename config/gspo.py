# GSPO, alone: one ratio a sequence, clip 3e-4 / 4e-4, no KL, every sequence counts the same.
#   its token variant (same gradient as long as a sequence has one advantage): --ratio=sequence_token
ratio = 'sequence'
clip_low = 3e-4
clip_high = 4e-4
average = 'seq'
beta = 0.0
dynamic_sampling = False
pruning = 'none'
adaptive_rollouts = False
greso = False
