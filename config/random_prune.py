# Random pruning (Table 5): the control; --prune_rate=0.25, 0.5, 0.75.
pruning, prune_rate, adaptive_rollouts = 'random', 0.5, False
