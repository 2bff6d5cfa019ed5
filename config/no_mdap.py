# FastRL without MDAP (Table 2): all are trained on; ARS still counts what MDAP would keep.
pruning, adaptive_rollouts = 'none', True
