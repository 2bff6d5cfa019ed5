pruning, adaptive_rollouts = 'mdap', False  # Table 2, FastRL without ARS: always rollouts_per_question
