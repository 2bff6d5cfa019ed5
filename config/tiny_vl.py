# The toy's model takes any picture data set through the loop: train.py config/geo3k.py config/tiny_vl.py
out_dir, init_from = 'out/tiny_vl', 'toy'
max_steps, epochs, questions_per_step, rollouts_per_question, gradient_checkpointing = 2, 0, 2, 4, False
max_prompt_tokens, max_response_tokens, eval_questions, eval_every = 8192, 64, 1, 0
