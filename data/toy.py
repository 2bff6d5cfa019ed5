"""A geometry task and a small vision-language model, made on the spot: nothing to download, no GPU needed.

    python data/toy.py --level=1          # 1 is a demo; 2 and 3 are hard enough to tell methods apart

writes data/toy_geo/level1/{train,test,ood}.parquet and data/toy_geo/level1/warm_start/, a real Qwen2.5-VL with
image processor and tokenizer, trained on worked answers. What to know before quoting numbers:
* The teacher is sloppy: a share of the worked answers follows a wrong recipe. RL gains much by dropping it.
* Each kind of question is worked in three styles, so that answers of equal reward differ in structure.
* A question's text does not tell its answer: the best constant answer is right less than a quarter of the time.
* test has pictures that neither the worked answers nor train show, ood pairs of sides that they never show.
Expect TODO
"""
import argparse
import random
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

LEVELS = {  # side of the picture in pixels, lengths of sides, steps of warm start, share of wrong recipes
    1: {'pixels': 56, 'sides': range(2, 7), 'steps': 600, 'sloppy': {'area': 0.6, 'perimeter': 0.6}},
    2: {'pixels': 56, 'sides': range(2, 9), 'steps': 600, 'sloppy': {'area': 0.5, 'perimeter': 0.8, 'diagonal': 0.97}},
    3: {'pixels': 84, 'sides': range(2, 10), 'steps': 900, 'sloppy': {'area': 0.5, 'perimeter': 0.7, 'diagonal': 0.9}},
}
ROWS = {'train': 400, 'test': 200, 'ood': 100}
PROBLEM = '<image>What is the {} of the shape?'
COLOURS = ['mediumblue', 'seagreen', 'firebrick', 'purple', 'teal', 'chocolate']  # light ones are hard to see
DIGITS = '75557 26227 71747 71717 55711 74717 74757 71111 75757 75717'.split()  # five rows of three bits each
SPECIAL = '<|endoftext|> <|im_start|> <|im_end|> <|vision_start|> <|vision_end|> <|image_pad|> <|video_pad|>'.split()
WORDS = r'''<unk> system user assistant What is the area perimeter diagonal of shape ? <thinking> </thinking> . ,
    \boxed{ \sqrt{ \frac{ }{ } rectangle triangle width height + * / = count walk rows root'''.split()
TEMPLATE = """{% for message in messages %}<|im_start|>{{ message.role }}
{% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content %}
{%- if part.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part.text }}{% endif %}
{%- endfor %}{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"""


def sample_scene(level, w, h, kind, rng):
    """What a picture shows. Level 1 is drawn to scale. From level 2 on the sides are written beside the shape; on
    level 3 the width may be missing: the number inside is the area, and the width has to be worked out."""
    shape, area, labels, n = 'rectangle', 0, [], LEVELS[level]['pixels'] // 14
    if level == 1:  # on a grid of 7 pixels
        box = 7 * rng.randint(0, 8 - w), 7 * rng.randint(0, 8 - h), 7 * w, 7 * h
    else:
        shape = rng.choice(['rectangle', 'triangle'])
        size = rng.randint(28, 14 * n - 20), rng.randint(28, 14 * n - 20)
        box = 14 + rng.randint(0, 6), 14 * n - 15 - rng.randint(0, 6) - size[1], *size
        if level == 3 and kind != 'area' and (shape == 'rectangle' or w * h % 2 == 0) and rng.random() < 0.5:
            area = w * h if shape == 'rectangle' else w * h // 2
        labels = [(h, 0, n // 2 - 1), (area, 1, n - 2) if area else (w, n // 2, n - 1)]  # number, column, row
    scene = {'shape': shape, 'w': w, 'h': h, 'area': area, 'box': box, 'labels': labels}
    return scene | {'key': crc32(repr(scene).encode()), 'colour': rng.choice(COLOURS)}


def draw(scene, pixels):
    picture, (x, y, w, h) = Image.new('RGB', (pixels, pixels), 'white'), scene['box']
    corners = [(x, y), (x, y + h - 1), (x + w - 1, y + h - 1), (x + w - 1, y)]
    ImageDraw.Draw(picture).polygon(corners[:3 if scene['shape'] == 'triangle' else 4], fill=scene['colour'])
    for number, column, row in scene['labels']:
        for i, digit in enumerate(str(number)):
            dots = [255 - 255 * (int(bits) >> place & 1) for bits in DIGITS[int(digit)] for place in (2, 1, 0)]
            glyph = Image.frombytes('L', (3, 5), bytes(dots)).resize((6, 10), Image.Resampling.NEAREST)
            picture.paste(glyph, (14 * column + 7 * i, 14 * row + 2))  # two digits fit into a patch of 14 x 14
    return picture


def root(n):
    """The square root in simplest LaTeX: 25 -> 5, 20 -> 2 \\sqrt{ 5 }, 13 -> \\sqrt{ 13 }."""
    k = max(k for k in range(1, n) if n % (k * k) == 0)
    return str(k) if n == k * k else (f'{k} ' if k > 1 else '') + rf'\sqrt{{ {n // (k * k)} }}'


def recipes(shape, kind, w, h):
    """Right and wrong ways to work a question; each ends with its result."""
    a, b = max(w, h), min(w, h)  # the longer side first: a held-out picture needs no new multiplication
    s, p, c, x = a + b, a * b, a * a + b * b, root(a * a + b * b)
    if kind == 'area':
        right = [f'{a} * {b} = {p}', f'rows {" + ".join([str(a)] * b)} = {p}',
                 f'count {" , ".join(str(a * i) for i in range(1, b + 1))}']
        if shape == 'rectangle':
            return right, [f'{a} + {b} = {s}', f'rows {a} + {b} = {s}', f'count {a} , {s}']
        half = rf'\frac{{ {p} }}{{ 2 }}' if p % 2 else p // 2
        return [f'{way} , {p} / 2 = {half}' for way in right], right
    if kind == 'perimeter' and shape == 'rectangle':
        return ([f'{a} + {b} = {s} , 2 * {s} = {2 * s}', f'{a} + {b} + {a} + {b} = {2 * s}',
                 f'walk {a} , {s} , {s + a} , {2 * s}'],
                [f'{a} + {b} = {s}', f'{a} + {b} + {a} = {s + a}', f'walk {a} , {s}'])
    right = [f'{a} * {a} = {a * a} , {b} * {b} = {b * b} , {a * a} + {b * b} = {c} , root = {x}',
             f'{a * a} + {b * b} = {c} , root = {x}', f'{b * b} + {a * a} = {c} , root of {c} = {x}']
    if kind == 'perimeter':  # of a triangle
        right = [f'{way} , {a} + {b} = {s} , {s + int(x) if x.isdigit() else f"{s} + {x}"}' for way in right]
    return right, [f'{a} + {b} = {s}', f'{a * a} + {b * b} = {c}', f'walk {a} , {s}']


def result(steps):
    return steps.replace(' , ', ' = ').split(' = ')[-1]


def demonstration(scene, kind, sloppy, rng):
    """A worked answer; it follows a wrong recipe with probability `sloppy`."""
    shape, w, h, area = (scene[key] for key in ('shape', 'w', 'h', 'area'))
    facts = ' '.join(rng.sample([f'height {h}', f'area {area}' if area else f'width {w}'], 2))
    if area:  # first find the width
        facts += f' , {area} / {h} = {w}' if shape == 'rectangle' else f' , 2 * {area} / {h} = {w}'
    steps = rng.choice(recipes(shape, kind, w, h)[rng.random() < sloppy])
    return rf'<thinking> {shape} {facts} . {steps} </thinking> \boxed{{ {result(steps)} }} <|im_end|>'


def sample_questions(level, split, count, rng):
    """`count` different (scene, kind) with pictures of the split, kinds and pairs of sides in equal shares."""
    sides, kinds, found, i = LEVELS[level]['sides'], list(LEVELS[level]['sloppy']), {}, 0
    pairs = [(w, h) for w in sides for h in sides if ((w - h) % len(sides) == 3) == (split == 'ood')]
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


def make_model():
    """-> untrained model, tokenizer (a word or a whole number is a token), image processor."""
    vocabulary = {word: i for i, word in enumerate(SPECIAL + WORDS + [str(number) for number in range(200)])}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token='<unk>'))
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split('?', 'isolated'), pre_tokenizers.WhitespaceSplit()])
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=core, unk_token='<unk>', pad_token='<|endoftext|>', eos_token='<|im_end|>',
        additional_special_tokens=SPECIAL, chat_template=TEMPLATE)
    pad, _, end, vision_start, vision_end, image, video = tokenizer.convert_tokens_to_ids(SPECIAL)
    shared = {'initializer_range': 0.1, 'bos_token_id': None, 'eos_token_id': end, 'pad_token_id': pad}
    model = transformers.Qwen2_5_VLForConditionalGeneration(transformers.Qwen2_5_VLConfig(
        text_config=shared | {  # the usual range of 0.02 suits wide models; with it this one learns far slower
            'vocab_size': len(vocabulary), 'hidden_size': 64, 'intermediate_size': 192, 'num_hidden_layers': 2,
            'num_attention_heads': 2, 'num_key_value_heads': 1,
            'rope_parameters': {'rope_type': 'default', 'rope_theta': 1e4, 'mrope_section': [4, 6, 6]}},
        vision_config={'initializer_range': 0.1, 'depth': 1, 'hidden_size': 48, 'num_heads': 2,
                       'intermediate_size': 96, 'out_hidden_size': 64},
        image_token_id=image, video_token_id=video, vision_start_token_id=vision_start,
        vision_end_token_id=vision_end, tie_word_embeddings=True, **shared))
    model.generation_config = transformers.GenerationConfig(eos_token_id=end, pad_token_id=pad)
    return model, tokenizer, transformers.Qwen2VLImageProcessorPil()


def warm_start(model, tokenizer, processor, level, rng, effort):
    """Supervised training on worked answers. Its questions come from the same pictures as those of train."""
    spec, start, steps = LEVELS[level], time.time(), 1 + round(effort * LEVELS[level]['steps'])
    shown = sample_questions(level, 'train', round(2000 * min(1, effort)) + 64, rng)
    inputs = processor([draw(scene, spec['pixels']) for scene, _ in shown], return_tensors='pt')
    patches = inputs['pixel_values'].unflatten(0, (len(shown), -1))  # [pictures, patches, 1176]
    picture = f'<|vision_start|>{"<|image_pad|>" * (patches.shape[1] // 4)}<|vision_end|>'
    prompts = [tokenizer.apply_chat_template(
        [{'role': 'user', 'content': PROBLEM.format(kind).replace('<image>', picture)}],
        tokenize=False, add_generation_prompt=True) for _, kind in shown]
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, steps, pct_start=0.05, cycle_momentum=False)
    for step in range(steps):
        rows = rng.sample(range(len(shown)), 32)
        texts = [prompts[i] + demonstration(*shown[i], spec['sloppy'][shown[i][1]], rng) for i in rows]
        ids = tokenizer(texts, padding=True, return_tensors='pt')['input_ids']  # [B, L]
        in_prompt = (ids == tokenizer.convert_tokens_to_ids('assistant')).cumsum(1) == 0  # [B, L]
        loss = model(
            input_ids=ids, labels=ids.masked_fill(in_prompt | (ids == tokenizer.pad_token_id), -100),
            mm_token_type_ids=(ids == model.config.image_token_id).int(),  # for the 3-D positions
            pixel_values=patches[rows].flatten(0, 1), image_grid_thw=inputs['image_grid_thw'][rows]).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        if step % 100 == 0 or step == steps - 1:
            print(f'warm start: step {step}, loss {loss.item():.3f}, {time.time() - start:.0f} s', flush=True)


def prepare(folder='data/toy_geo', level=1, seed=0, effort=1.0):
    """Write `folder`/level1. `effort` scales the warm start: 0.02 gives a nearly untrained model in seconds."""
    start, target, rng = time.time(), Path(folder) / f'level{level}', random.Random(seed)
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f'{target.name}_', dir=target.parent))  # renamed when complete
    for split, count in ROWS.items():
        rows = [{'id': f'{split}-{i}', 'problem': PROBLEM.format(kind), 'choices': [],
                 'images': [draw(scene, LEVELS[level]['pixels'])],
                 'answer': result(recipes(scene['shape'], kind, scene['w'], scene['h'])[0][0])}
                for i, (scene, kind) in enumerate(sample_questions(level, split, count, rng))]
        table = datasets.Dataset.from_list(rows).cast_column('choices', datasets.List(datasets.Value('string')))
        table.to_parquet(aside / f'{split}.parquet')
    with torch.random.fork_rng(devices=[]):  # leaves the caller's random numbers alone
        torch.manual_seed(seed)
        parts = make_model()
        warm_start(*parts, level, rng, effort)
    for part in parts:
        part.save_pretrained(aside / 'warm_start')
    shutil.rmtree(target, ignore_errors=True)
    aside.rename(target)
    print(f'{target}: {ROWS} questions, {parts[0].num_parameters():,} parameters, {time.time() - start:.0f} s')


if __name__ == '__main__':
    parser = argparse.ArgumentParser()
    parser.add_argument('--folder', default='data/toy_geo')
    parser.add_argument('--level', type=int, default=1, choices=LEVELS)
    parser.add_argument('--seed', type=int, default=0)
    prepare(**vars(parser.parse_args()))
