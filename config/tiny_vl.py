# A tiny Qwen2.5-VL with random weights and one token per byte, to take any picture data set through the loop:
#   python train.py config/geo3k.py config/tiny_vl.py   (a minute; it learns nothing, all else is real)
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from data import toy

init_from = 'data/tiny_vl'
if not Path(init_from, 'config.json').exists():
    _bytes = pre_tokenizers.ByteLevel(add_prefix_space=False)
    _core = Tokenizer(models.BPE({m: i for i, m in enumerate(toy.SPECIAL + sorted(_bytes.alphabet()))}, []))
    _core.pre_tokenizer, _core.decoder = _bytes, decoders.ByteLevel()
    _tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=_core, eos_token='<|im_end|>', pad_token='<|endoftext|>',
        additional_special_tokens=toy.SPECIAL, chat_template=toy.TEMPLATE)
    _model, _, _pictures = toy.make_model()
    _model.resize_token_embeddings(len(_tokenizer))
    for _part in _model, _tokenizer, _pictures:
        _part.save_pretrained(init_from)
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
