# Random pruning (Table 5): the control; --prune_rate=0.25, 0.5, 0.75.
pruning = 'random'
prune_rate = 0.5
adaptive_rollouts = False
