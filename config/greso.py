pruning, adaptive_rollouts, greso = 'none', False, True  # may skip questions last all right or all wrong
