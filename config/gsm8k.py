# Grade-school questions (python data/prepare.py gsm8k); SmolLM2, minutes a step, answers one in thirty.
out_dir, dataset = 'out/gsm8k', 'gsm8k'
prompt_suffix = '\nAnswer as <thinking> steps </thinking> \\boxed{number}.'
examples = [['Tom has 3 boxes with 4 pens each. He gives away 5 pens. How many are left?' + prompt_suffix,
             '<thinking> 3 boxes of 4 pens are 3 * 4 = 12 pens. 12 - 5 = 7. </thinking> \\boxed{7}'],
            ['A book costs $6 and a bag twice as much. What do both cost?' + prompt_suffix,
             '<thinking> The bag costs 2 * 6 = 12. Both cost 6 + 12 = 18. </thinking> \\boxed{18}']]
temperature, max_response_tokens, max_steps, print_every = 0.6, 128, 200, 1  # at 1 nothing is right
