# The toy's tiny Qwen2.5-VL, to take any picture data set through the whole loop in a minute on a CPU:
#   python train.py config/geo3k.py config/tiny_vl.py    (it knows few words and learns nothing)
init_from = 'toy'
out_dir = 'out/tiny_vl'
max_steps, epochs = 2, 0
questions_per_step, rollouts_per_question = 2, 4
max_prompt_tokens, max_response_tokens = 8192, 64
gradient_checkpointing = False
eval_questions, eval_every = 1, 0
