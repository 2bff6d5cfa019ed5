pruning, tau, adaptive_rollouts = 'mdap', 0.8, True  # behind a base algorithm: MDAP prunes, ARS adapts G
