pruning, prune_rate, adaptive_rollouts = 'random', 0.5, False  # Table 5: --prune_rate=0.25, 0.5, 0.75
