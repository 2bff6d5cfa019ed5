# The paper's run: Qwen2.5-VL-7B-Instruct on Geometry3K, 8 GPUs of 80 GB.
#   pip install torchvision && python data/prepare.py geo3k
#   torchrun --standalone --nproc_per_node=8 train.py config/geo3k.py
# Paper (4 x H20, 25 epochs): 55.9 % of 601 test questions after 13.9 hours; plain GRPO: 53.7 %, 29.7 hours.
out_dir = 'out/geo3k'
init_from = 'Qwen/Qwen2.5-VL-7B-Instruct'
dataset = 'geo3k'
prompt_suffix = ('\nReason step by step inside <thinking> </thinking> before you answer. '
                 'Then write the final answer inside \\boxed{}.')
min_pixels, max_pixels = 262144, 4194304
max_response_tokens = 2048
max_steps, epochs = 0, 25  # of 8 steps
questions_per_step = 256
beta = 0.01
old_logps = 'recompute'  # as the paper does
learning_rate, weight_decay, beta2, warmup_steps = 1e-6, 0.01, 0.999, 0
gradient_checkpointing = True
eval_temperature, eval_top_p, eval_sampled = 0.6, 0.95, False
eval_every, save_every = 8, 8
