# Advantage-only pruning (Table 5): one random trajectory of each advantage.
pruning = 'advantage_only'
adaptive_rollouts = False
