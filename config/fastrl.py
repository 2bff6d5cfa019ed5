# FastRL behind a base algorithm: MDAP prunes, ARS adapts the number of rollouts.
pruning = 'mdap'
tau = 0.8
adaptive_rollouts = True
