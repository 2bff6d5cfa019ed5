pruning, prune_rate, adaptive_rollouts = 'cppo', 0.5, False  # largest |A|; allocation: README
