# FastRL behind a base algorithm: MDAP prunes, ARS adapts the number of rollouts.
pruning, tau, adaptive_rollouts = 'mdap', 0.8, True
