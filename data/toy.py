"""A geometry task and a small vision-language model, made on the spot: nothing to download, no GPU needed.

    python data/toy.py --level=1          # 1 is a demo; 2 and 3 are hard enough to tell methods apart

writes data/toy_geo/level1/{train,test,ood}.parquet and data/toy_geo/level1/warm_start/, a real Qwen2.5-VL with its
image processor and tokenizer, trained on worked answers. What to know before quoting numbers:
* The teacher is sloppy: a share of the worked answers follows a wrong recipe. Much of what RL gains is to drop it.
* Each kind of question is worked in three styles, so that answers of equal reward differ in structure.
* A question's text does not tell its answer: the best constant answer is right less than a quarter of the time.
* test has pictures that neither the worked answers nor train show, ood pairs of sides that they never show.
Expect TODO
"""
import argparse
import math
import random
import re
import shutil
import tempfile
import time
from pathlib import Path
from zlib import crc32

import datasets
import torch
import transformers
from PIL import Image, ImageDraw
from tokenizers import Tokenizer, models, pre_tokenizers

LEVELS = {  # side of the picture in pixels, lengths of sides, share of wrong recipes, steps of warm start, width
    1: dict(pixels=56, sides=range(2, 7), sloppy=0.6, steps=600, hidden=64),
    2: dict(pixels=56, sides=range(2, 9), sloppy=0.5, steps=1500, hidden=64),
    3: dict(pixels=84, sides=range(2, 10), sloppy=0.5, steps=2000, hidden=96),
}
PROBLEM = '<image>What is the {} of the shape?'
ROWS = {'train': 400, 'test': 200, 'ood': 100}
COLOURS = ['mediumblue', 'seagreen', 'firebrick', 'purple', 'teal', 'chocolate']  # light ones are hard to see
DIGITS = ['75557', '26227', '71747', '71717', '55711', '74717', '74757', '71111', '75757', '75717']  # rows of 3 bits
SPECIAL = ['<|endoftext|>', '<|im_start|>', '<|im_end|>', '<|vision_start|>', '<|vision_end|>', '<|image_pad|>',
           '<|video_pad|>']
WORDS = r'''<unk> system user assistant What is the area perimeter diagonal of shape ? <thinking> </thinking> \boxed{
    \sqrt{ \frac{ }{ } rectangle triangle width height . , + * / = count walk rows root'''.split()
TEMPLATE = """{% for message in messages %}<|im_start|>{{ message.role }}
{% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content %}
{%- if part.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part.text }}{% endif %}
{%- endfor %}{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def sample_scene(level, w, h, kind, rng):
    """What a picture shows. Level 1 is drawn to scale. From level 2 on the sides are written beside the shape; on
    level 3 the width may be missing: the number inside is the area, and the width has to be worked out."""
    n, shape, area, labels = LEVELS[level]['pixels'] // 14, 'rectangle', 0, []
    if level == 1:  # on a grid of 7 pixels
        box = 7 * rng.randint(0, 8 - w), 7 * rng.randint(0, 8 - h), 7 * w, 7 * h
    else:
        shape = rng.choice(['rectangle', 'triangle'])
        size = rng.randint(28, 14 * n - 20), rng.randint(28, 14 * n - 20)
        box = 14 + rng.randint(0, 6), 14 * n - 15 - rng.randint(0, 6) - size[1], *size
        if level == 3 and kind != 'area' and (shape == 'rectangle' or w * h % 2 == 0) and rng.random() < 0.5:
            area = w * h if shape == 'rectangle' else w * h // 2
        places = (0, rng.randint(0, n - 2)), (1, n - 2) if area else (rng.randint(1, n - 1), n - 1)
        labels = [(number, 14 * x + rng.randint(0, 1), 14 * y + rng.randint(0, 3))  # each within a patch of 14 pixels
                  for number, (x, y) in zip([h, area or w], places)]
    scene = {'shape': shape, 'w': w, 'h': h, 'area': area, 'box': box, 'labels': labels}
    return scene | {'key': crc32(repr(scene).encode()), 'colour': rng.choice(COLOURS)}


def draw(scene, pixels):
    picture = Image.new('RGB', (pixels, pixels), 'white')
    x, y, w, h = scene['box']
    corners = [(x, y), (x, y + h - 1), (x + w - 1, y + h - 1), (x + w - 1, y)]
    ImageDraw.Draw(picture).polygon(corners[:3 if scene['shape'] == 'triangle' else 4], fill=scene['colour'])
    for number, left, top in scene['labels']:
        for i, digit in enumerate(str(number)):  # 3 x 5 dots of 2 x 2 pixels: two digits fit into a patch
            glyph = Image.new('L', (3, 5))
            glyph.putdata([0 if int(row) >> bit & 1 else 255 for row in DIGITS[int(digit)] for bit in (2, 1, 0)])
            picture.paste(glyph.resize((6, 10), Image.Resampling.NEAREST), (left + 7 * i, top))
    return picture


def root(n):
    """The square root in simplest LaTeX: 25 -> 5, 20 -> 2 \\sqrt{ 5 }, 13 -> \\sqrt{ 13 }."""
    k = max(k for k in range(1, math.isqrt(n) + 1) if n % (k * k) == 0)
    return str(k) if n == k * k else (f'{k} ' if k > 1 else '') + rf'\sqrt{{ {n // (k * k)} }}'


def recipes(shape, kind, w, h):
    """Right and wrong ways to work a question; each ends with its result."""
    a, b = max(w, h), min(w, h)  # the longer side first: a held-out picture needs no multiplication of its own
    s, p, c = a + b, a * b, a * a + b * b
    if kind == 'area':
        rows, counts = ' + '.join([str(a)] * b), ' , '.join(str(a * i) for i in range(1, b + 1))
        right = [f'{a} * {b} = {p}', f'rows {rows} = {p}', f'count {counts}']
        if shape == 'rectangle':
            return right, [f'{a} + {b} = {s}', f'rows {a} + {b} = {s}', f'count {a} , {s}']
        half = rf'\frac{{ {p} }}{{ 2 }}' if p % 2 else p // 2
        return [f'{way} , {p} / 2 = {half}' for way in right], right
    if kind == 'perimeter' and shape == 'rectangle':
        return ([f'{a} + {b} = {s} , 2 * {s} = {2 * s}', f'{a} + {b} + {a} + {b} = {2 * s}',
                 f'walk {a} , {s} , {s + a} , {2 * s}'],
                [f'{a} + {b} = {s}', f'{a} + {b} + {a} = {s + a}', f'walk {a} , {s}'])
    x = root(c)  # the diagonal of a rectangle, and the longest side of a triangle
    right = [f'{a} * {a} = {a * a} , {b} * {b} = {b * b} , {a * a} + {b * b} = {c} , root = {x}',
             f'{a * a} + {b * b} = {c} , root = {x}', f'{b * b} + {a * a} = {c} , root of {c} = {x}']
    wrong = [f'{a} + {b} = {s}', f'{a * a} + {b * b} = {c}', f'walk {a} , {s}']
    if kind == 'perimeter':
        total = s + int(x) if x.isdigit() else f'{s} + {x}'
        right = [f'{way} , {a} + {b} = {s} , {total}' for way in right]
    return right, wrong


def result(steps):
    return re.split(' = | , ', steps)[-1]


def demonstration(scene, kind, sloppy, rng):
    """A worked answer, wrong with probability `sloppy`."""
    shape, w, h, area = (scene[key] for key in ('shape', 'w', 'h', 'area'))
    facts = ' '.join(rng.sample([f'height {h}', f'area {area}' if area else f'width {w}'], 2))
    steps = rng.choice(recipes(shape, kind, w, h)[rng.random() < sloppy])
    answer = result(steps)
    if area:  # first find the width
        steps = f'{w * h} / {h} = {w} . {steps}'
        steps = steps if shape == 'rectangle' else f'2 * {area} = {w * h} , {steps}'
    return rf'<thinking> {shape} {facts} . {steps} </thinking> \boxed{{ {answer} }} <|im_end|>'


def sample_questions(level, split, count, rng):
    """`count` different (scene, kind) with pictures of this split, kinds and pairs of sides in equal shares."""
    sides, found, i = LEVELS[level]['sides'], {}, 0
    kinds = ['area', 'perimeter', 'diagonal'][:2 if level == 1 else 3]
    pairs = [(w, h) for w in sides for h in sides  # (5, 2) is held out, (2, 5) is not
             if ((w - h) % len(sides) == 3) == (split == 'ood')]
    while len(found) < count:
        kind, (w, h) = kinds[i % len(kinds)], pairs[i // len(kinds) % len(pairs)]
        i += 1
        for _ in range(100):  # a large rectangle has few places: when they are used up, go on
            scene = sample_scene(level, w, h, kind, rng)
            name = scene['key'], scene['colour'], kind
            if name not in found and (split == 'ood' or (scene['key'] % 4 == 0) == (split == 'test')):
                found[name] = scene, kind
                break
    return rng.sample(list(found.values()), count)


def make_tokenizer():
    words = SPECIAL + WORDS + [str(i) for i in range(200)]  # a whole number is one word
    core = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token='<unk>'))
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split('?', 'isolated'), pre_tokenizers.WhitespaceSplit()])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=core, unk_token='<unk>', pad_token=SPECIAL[0], eos_token=SPECIAL[2],
        additional_special_tokens=SPECIAL, chat_template=TEMPLATE)


def make_model(tokenizer, hidden):
    pad, _, end, vision_start, vision_end, image, video = tokenizer.convert_tokens_to_ids(SPECIAL)
    ends = {'bos_token_id': None, 'eos_token_id': end, 'pad_token_id': pad}
    model = transformers.Qwen2_5_VLForConditionalGeneration(transformers.Qwen2_5_VLConfig(
        text_config=dict(
            vocab_size=len(tokenizer), hidden_size=hidden, intermediate_size=3 * hidden, num_hidden_layers=2,
            num_attention_heads=hidden // 32, num_key_value_heads=1, max_position_embeddings=1024,
            rope_parameters={'rope_type': 'default', 'rope_theta': 1e4, 'mrope_section': [4, 6, 6]}, **ends),
        vision_config=dict(depth=1, hidden_size=48, num_heads=2, intermediate_size=96, out_hidden_size=hidden),
        image_token_id=image, video_token_id=video, vision_start_token_id=vision_start,
        vision_end_token_id=vision_end, tie_word_embeddings=True, **ends))
    for module in model.modules():  # the library's 0.02 suits wide models; with it this one learns far slower
        if isinstance(module, (torch.nn.Linear, torch.nn.Conv3d)):
            torch.nn.init.normal_(module.weight, std=module.weight[0].numel() ** -0.5)
    torch.nn.init.normal_(model.get_input_embeddings().weight, std=0.05)  # the output layer too: they are tied
    model.generation_config = transformers.GenerationConfig(eos_token_id=end, pad_token_id=pad)
    return model


def warm_start(model, tokenizer, processor, level, rng, effort):
    """Supervised training on worked answers to questions of the train split's kind."""
    spec, start, steps = LEVELS[level], time.time(), 1 + round(LEVELS[level]['steps'] * effort)
    shown = sample_questions(level, 'train', round(2000 * min(1, effort)) + 64, rng)
    inputs = processor([draw(scene, spec['pixels']) for scene, _ in shown], return_tensors='pt')
    patches = inputs['pixel_values'].unflatten(0, (len(shown), -1))  # [pictures, patches, 1176]
    prompts = {}
    for kind in {kind for _, kind in shown}:
        content = [{'type': 'image'}, {'type': 'text', 'text': PROBLEM.format(kind).removeprefix('<image>')}]
        text = tokenizer.apply_chat_template(
            [{'role': 'user', 'content': content}], tokenize=False, add_generation_prompt=True)
        prompts[kind] = text.replace('<|image_pad|>', '<|image_pad|>' * (patches.shape[1] // 4))
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, steps, pct_start=0.05, cycle_momentum=False)
    for step in range(steps):
        chosen = rng.sample(range(len(shown)), 32)
        texts = [prompts[shown[i][1]] + demonstration(*shown[i], spec['sloppy'], rng) for i in chosen]
        ids = tokenizer(texts, padding=True, return_tensors='pt')['input_ids']  # [B, L]
        prompt = (ids == tokenizer.convert_tokens_to_ids('assistant')).cumsum(1) == 0  # [B, L]
        labels = ids.masked_fill(prompt | (ids == tokenizer.pad_token_id), -100)
        loss = model(
            input_ids=ids, mm_token_type_ids=(ids == model.config.image_token_id).int(), labels=labels,
            pixel_values=patches[chosen].flatten(0, 1), image_grid_thw=inputs['image_grid_thw'][chosen]).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        if step % 100 == 0 or step == steps - 1:
            print(f'warm start: step {step}, loss {loss.item():.3f}, {time.time() - start:.0f} s', flush=True)


def prepare(folder='data/toy_geo', level=1, seed=0, effort=1.0):
    """Write `folder`/level<level>. `effort` scales the warm start: 0.02 gives a nearly untrained model in seconds."""
    start, target, rng = time.time(), Path(folder) / f'level{level}', random.Random(seed)
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f'{target.name}_', dir=target.parent))  # renamed when complete
    string = datasets.Value('string')
    features = datasets.Features({'id': string, 'problem': string, 'images': datasets.List(datasets.Image()),
                                  'answer': string, 'choices': datasets.List(string)})
    for split, count in ROWS.items():
        rows = [{'id': f'{split}-{i}', 'problem': PROBLEM.format(kind), 'images': [draw(scene, LEVELS[level]['pixels'])],
                 'answer': result(recipes(scene['shape'], kind, scene['w'], scene['h'])[0][0]), 'choices': []}
                for i, (scene, kind) in enumerate(sample_questions(level, split, count, rng))]
        datasets.Dataset.from_list(rows, features=features).to_parquet(aside / f'{split}.parquet')
    with torch.random.fork_rng(devices=[]):  # leaves a caller's random numbers alone
        torch.manual_seed(seed)
        tokenizer, processor = make_tokenizer(), transformers.Qwen2VLImageProcessorPil()
        model = make_model(tokenizer, LEVELS[level]['hidden'])
        warm_start(model, tokenizer, processor, level, rng, effort)
    for part in model, tokenizer, processor:
        part.save_pretrained(aside / 'warm_start')
    shutil.rmtree(target, ignore_errors=True)
    aside.rename(target)
    print(f'{target}: {ROWS} questions, {model.num_parameters():,} parameters, {time.time() - start:.0f} s')


if __name__ == '__main__':
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--folder', default='data/toy_geo')
    parser.add_argument('--level', type=int, default=1, choices=LEVELS)
    parser.add_argument('--seed', type=int, default=0)
    prepare(**vars(parser.parse_args()))
