# FastRL without ARS (Table 2): always rollouts_per_question rollouts.
pruning, adaptive_rollouts = 'mdap', False
