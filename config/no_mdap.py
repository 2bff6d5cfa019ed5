pruning, adaptive_rollouts = 'none', True  # Table 2, without MDAP: ARS counts what it would have kept
