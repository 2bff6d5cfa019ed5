# Sums of two numbers. SmolLM2 learns to add in an hour on one core: greedy 0.36 -> 0.67 on unseen sums.
#   pip install reasoning-gym && python data/prepare.py arithmetic --limit=160; smollm2.py goes behind it
out_dir, dataset = 'out/arithmetic', 'arithmetic'
system_prompt = 'Add the numbers.'  # without the two examples it hardly ever writes \boxed{}
examples = [['What is 31 + 6?', '<thinking> 31 + 6 = 37 </thinking> \\boxed{37}'],
            ['What is 45 + 28?', '<thinking> 45 + 28 = 73 </thinking> \\boxed{73}']]
max_response_tokens, max_steps, eval_every, print_every = 40, 40, 20, 10
