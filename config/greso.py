# GRESO behind a base algorithm: questions last answered all right or all wrong are mostly skipped.
pruning = 'none'
adaptive_rollouts = False
greso = True
