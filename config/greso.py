# GRESO behind a base algorithm: questions last answered all right or all wrong may be skipped.
pruning = 'none'
adaptive_rollouts = False
greso = True
