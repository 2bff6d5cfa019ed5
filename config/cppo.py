# CPPO behind a base algorithm: largest |A|. Its allocation: --questions_per_step=N / (1 - prune_rate).
pruning = 'cppo'
prune_rate = 0.5
adaptive_rollouts = False
