# FastRL without MDAP (Table 2): all are trained on; ARS still counts what MDAP would keep.
pruning = 'none'
adaptive_rollouts = True
