"""What several test files share: tiny real models, a tokenizer made of their ids,
and train.py as a subprocess."""
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from datasets import Dataset
from safetensors.torch import load_file
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
from rollout import pad

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


# before= of launch: one line per pass of trajectories through a policy, one per optimizer step
COUNT_ROWS = '''
import json, model, torch
forward = model.Policy.forward
def counted(self, prompts, owner, ids, mask):
    frozen = not next(self.parameters()).requires_grad
    kind = 'update' if torch.is_grad_enabled() else 'ref' if frozen else 'old'
    with open(FILE + str(RANK), 'a') as file:
        file.write(json.dumps([kind, len(owner), int(mask.sum()), len(prompts)]) + '\\n')
    return forward(self, prompts, owner, ids, mask)
model.Policy.forward = counted
step = model.MasterAdamW.step
def counted_step(self, *args, **kwargs):
    with open(FILE + str(RANK), 'a') as file:
        file.write(json.dumps(['step', 0, 0, 0]) + '\\n')
    return step(self, *args, **kwargs)
model.MasterAdamW.step = counted_step
'''


def stack(trajectories):
    """N trajectories -> ids, mask, logps [N, T] padded right, owner and truncated [N], and N texts."""
    lengths = torch.tensor([len(t.ids) for t in trajectories])
    return SimpleNamespace(
        ids=pad([t.ids for t in trajectories], 'cpu'), logps=pad([t.logps for t in trajectories], 'cpu'),
        mask=torch.arange(int(lengths.max())) < lengths[:, None],
        owner=torch.tensor([t.slot for t in trajectories]), text=[t.text for t in trajectories],
        truncated=torch.tensor([t.truncated for t in trajectories]))

# before= of launch: a third of the questions is always answered right, a third always wrong, and of the rest
# every other response is right
COIN = '''
import reward, zlib
def coin(response, question):
    kind = zlib.crc32(question['id'].encode()) % 3
    right = float([True, False, zlib.crc32(response.encode()) % 2][kind])
    return {'reward': right + 0.5, 'format': 0.5, 'accuracy': right}
reward.KINDS['math'] = coin
'''


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


def subset(level, path, count, **columns):
    """`count` training questions as a file of their own, with some columns replaced."""
    rows = Dataset.from_parquet(str(level / 'train.parquet')).select(range(count))
    for name, values in columns.items():
        feature = rows.features[name]
        rows = rows.remove_columns(name).add_column(name, values, feature=feature)
    rows.to_parquet(str(path))
    return path


def weights(folder):
    return load_file(Path(folder, 'model.safetensors'))


def distance(a, b):
    """Largest difference between the weights of two folders."""
    a, b = weights(a), weights(b)
    assert a.keys() == b.keys()
    return max((a[name] - b[name]).abs().max().item() for name in a)


def norm(a, b):
    """Euclidean length of the difference between the weights of two folders."""
    a, b = weights(a), weights(b)
    return sum((a[name] - b[name]).double().square().sum().item() for name in a) ** 0.5


def without_times(records):
    return [{key: value for key, value in record.items() if not key.startswith(('time/', 'memory/'))}
            for record in records if 'config' not in record]


def passes(file, rank=0):
    return [json.loads(line) for line in Path(f'{file}{rank}').read_text().splitlines()]
