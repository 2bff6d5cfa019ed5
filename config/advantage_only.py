pruning, adaptive_rollouts = 'advantage_only', False  # Table 5: one random trajectory of each advantage
