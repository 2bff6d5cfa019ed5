# The toy's model takes any picture data set through the loop: train.py config/geo3k.py config/tiny_vl.py
out_dir, init_from = 'out/tiny_vl', 'toy'
max_steps, epochs, questions_per_step, rollouts_per_question = 2, 0, 2, 4
max_prompt_tokens, max_response_tokens, eval_questions, eval_every = 8192, 64, 1, 0
gradient_checkpointing = False
