# The toy's tiny Qwen2.5-VL with random weights, to take any picture data set through the whole loop:
#   python train.py config/geo3k.py config/tiny_vl.py   (a minute; it knows few words and learns nothing)
import os

from data import toy

init_from = 'data/tiny_vl'
if not os.path.isdir(init_from):
    _aside = f'{init_from}-{os.getpid()}'  # several ranks may be here at once: one's is kept
    for _part in toy.make_model():
        _part.save_pretrained(_aside)
    if not os.path.isdir(init_from):
        os.rename(_aside, init_from)
out_dir = 'out/tiny_vl'
max_steps = 2
epochs = 0
questions_per_step = 2
rollouts_per_question = 4
max_prompt_tokens = 8192
max_response_tokens = 64
gradient_checkpointing = False
eval_questions = 1
eval_every = 0
