# torchrun --standalone --nproc_per_node=8 train.py config/geo3k.py   8 GPUs of 80 GB; prepare.py geo3k first
# Paper (4 x H20, 25 epochs): 55.9 % of 601 test questions after 13.9 hours; plain GRPO: 53.7 %, 29.7 hours.
out_dir, dataset, init_from = 'out/geo3k', 'geo3k', 'Qwen/Qwen2.5-VL-7B-Instruct'
prompt_suffix = ('\nReason step by step inside <thinking> </thinking> before you answer. '
                 'Then write the final answer inside \\boxed{}.')
max_steps, epochs, questions_per_step, max_response_tokens = 0, 25, 256, 2048  # epochs of 8 steps
min_pixels, max_pixels, beta, old_logps = 262144, 4194304, 0.01, 'recompute'  # as the paper does
learning_rate, weight_decay, beta2, warmup_steps, gradient_checkpointing = 1e-6, 0.01, 0.999, 0, True
eval_temperature, eval_top_p, eval_sampled, eval_every, save_every = 0.6, 0.95, False, 8, 8
