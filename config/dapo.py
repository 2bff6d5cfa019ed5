# DAPO, alone: token ratio, clip-higher 0.2 / 0.28, no KL, questions without signal are replaced.
#   optional: --overlong_buffer=N (soft punishment of long answers), --mask_truncated
ratio = 'token'
clip_low = 0.2
clip_high = 0.28
average = 'token'
beta = 0.0
dynamic_sampling = True
pruning = 'none'
adaptive_rollouts = False
greso = False
