# CPPO behind a base algorithm: largest |A|. Its allocation: --questions_per_step=N / (1 - prune_rate).
pruning, prune_rate, adaptive_rollouts = 'cppo', 0.5, False
