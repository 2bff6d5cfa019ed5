# The paper's grounding run: Qwen3.5-9B on 50,000 elements of OS-Atlas, 8 GPUs of 80 GB. Not yet run by us.
#   python data/prepare.py os_atlas --source=screens/FILE.json --limit=50000     (pictures unzipped beside it)
out_dir, dataset, init_from, reward = 'out/grounding', 'os_atlas', 'Qwen/Qwen3.5-9B', 'grounding'
prompt_suffix = ('\nReason inside <thinking> </thinking>. Then write the box as '
                 '\\boxed{[left, top, right, bottom]}, in thousandths of width and height.')
max_prompt_tokens, max_response_tokens = 4096, 1024  # a screenshot of 1920 x 1080 takes 2,040
max_steps, questions_per_step, eval_questions = 390, 128, 500  # one pass; 4 updates of 32 questions
learning_rate, weight_decay, beta2, warmup_steps, gradient_checkpointing = 1e-6, 0.01, 0.999, 0, True
