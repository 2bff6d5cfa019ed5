"""What several test files share: tiny real models, a tokenizer made of their ids,
and train.py as a subprocess."""
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
)
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from model import PictureProcessor

ROOT = Path(__file__).parents[1]
SHARED = ROOT.parent / 'shared' / 'data'
needs_samples = pytest.mark.skipif(
    not SHARED.is_dir(), reason='the samples of the public data sets are not here')
MARKS = ['<|pad|>', '<|im_start|>', '<|im_end|>',
         '<|vision_start|>', '<|vision_end|>', '<|image_pad|>', '<|video_pad|>']
CHAT = ("{% for m in messages %}<|im_start|> {{ m.role }} "
        "{% if m.content is string %}{{ m.content }}{% else %}{% for part in m.content %}"
        "{{ '<|vision_start|><|image_pad|><|vision_end|>' if part.type == 'image' else part.text }}"
        "{% endfor %}{% endif %} <|im_end|> {% endfor %}"
        "{% if add_generation_prompt %}<|im_start|> assistant {% endif %}")


def word_tokenizer(size=120):
    """Words w0 w1 ... besides the chat marks; end id 2, pad id 0."""
    words = MARKS + ['user', 'assistant', 'system'] + [f'w{i}' for i in range(size - len(MARKS) - 3)]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token='w0'))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token='<|im_end|>', pad_token='<|pad|>',
                                   additional_special_tokens=MARKS[1:], chat_template=CHAT)


def sharpen(model):
    """Larger random weights than the library's, so that the distributions are far from flat."""
    generator = torch.Generator().manual_seed(0)
    for weight in model.parameters():
        if weight.dim() > 1:
            weight.data = torch.randn(weight.shape, generator=generator) * 0.6 / weight.shape[-1] ** 0.5
    return model.eval()


def tiny_llama(vocabulary=120):
    return sharpen(LlamaForCausalLM(LlamaConfig(
        vocab_size=vocabulary, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, eos_token_id=2, pad_token_id=0,
        bos_token_id=1))), word_tokenizer(vocabulary)


def tiny_qwen_vl(vocabulary=120):
    config = Qwen2_5_VLConfig(
        text_config=dict(vocab_size=vocabulary, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
                         num_attention_heads=2, num_key_value_heads=1, rope_parameters={
                             'rope_type': 'default', 'mrope_section': [2, 3, 3], 'rope_theta': 10000.0},
                         eos_token_id=2, pad_token_id=0),
        vision_config=dict(depth=2, hidden_size=32, intermediate_size=64, num_heads=2, patch_size=14,
                           window_size=56, out_hidden_size=32, fullatt_block_indexes=[1]),
        vision_start_token_id=3, vision_end_token_id=4, image_token_id=5, video_token_id=6,
        tie_word_embeddings=False)
    model = sharpen(Qwen2_5_VLForConditionalGeneration(config))
    model.generation_config.eos_token_id = 2
    return model, PictureProcessor(Qwen2VLImageProcessorPil(), word_tokenizer(vocabulary))


def run_train(*flags, processes=1, script='train.py', cwd=None, ok=True, timeout=280):
    """The README command at small sizes -> (stdout + stderr, exit code checked)."""
    start = [sys.executable] if processes == 1 else [
        sys.executable, '-m', 'torch.distributed.run', '--standalone', f'--nproc_per_node={processes}']
    done = subprocess.run([*start, str(ROOT / script), *map(str, flags)], capture_output=True, text=True,
                          timeout=timeout, cwd=cwd or ROOT,
                          env=os.environ | {'OMP_NUM_THREADS': '1', 'HF_HUB_OFFLINE': '1'})
    assert (done.returncode == 0) == ok, done.stdout + done.stderr
    return done.stdout + done.stderr


def read_log(folder):
    return [json.loads(line) for line in Path(folder, 'log.jsonl').read_text().splitlines()]
