# GRESO behind a base algorithm: questions last answered all right or all wrong may be skipped.
pruning, adaptive_rollouts, greso = 'none', False, True
