# Advantage-only pruning (Table 5): one random trajectory of each advantage.
pruning, adaptive_rollouts = 'advantage_only', False
