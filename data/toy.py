"""
A geometry task and a small vision-language model, made on the spot: everything here runs without a download or a GPU.

    python data/toy.py --level=1          # 1 is a demo; 2 and 3 are hard enough to tell methods apart

writes data/toy_geo/level1/{train,test,ood}.parquet and data/toy_geo/level1/warm_start/, a real Qwen2.5-VL with its
image processor and tokenizer, trained on worked answers. What to know before quoting numbers:
  * A sloppy teacher: a share of the worked answers follows a wrong recipe; much of what RL gains is unlearning it.
  * Each kind of question is worked in several styles, so that answers of equal reward differ in structure.
  * The text of a question does not tell its answer: the best constant answer is right less than a quarter of the time.
  * test shows pictures that neither the worked answers nor train show; ood shows pairs of sides they never show.
Expect (2 cores): TODO
"""
import argparse
import math
import random
import shutil
import tempfile
import time
import zlib
from pathlib import Path

import torch
import torch.nn.functional as F
from datasets import Dataset, Features, Image, List, Value
from PIL import Image as Picture
from PIL import ImageDraw
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GenerationConfig, PreTrainedTokenizerFast
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

LEVELS = {  # picture side in pixels, lengths of sides, share of wrong recipes, warm-start steps (sides only, answers), width
    1: dict(pixels=56, sides=range(2, 7), sloppy=0.5, read=140, answer=550, hidden=64),
    2: dict(pixels=56, sides=range(2, 9), sloppy=0.5, read=300, answer=1200, hidden=64),
    3: dict(pixels=84, sides=range(2, 10), sloppy=0.5, read=400, answer=1500, hidden=96),
}
ROWS = {'train': 400, 'test': 200, 'ood': 100}
COLOURS = ['mediumblue', 'seagreen', 'firebrick', 'purple', 'teal', 'chocolate']  # dark on white: light ones are hard to see
DIGITS = '75557 26227 71747 71717 55711 74717 74757 71111 75757 75717'.split()  # five rows of three bits each
SPECIAL = '<|endoftext|> <|im_start|> <|im_end|> <|vision_start|> <|vision_end|> <|image_pad|> <|video_pad|>'.split()
WORDS = r'''<unk> system user assistant What is the area perimeter diagonal of shape ? <thinking> </thinking> \boxed{
    \sqrt{ \frac{ }{ } rectangle triangle width height . , + * / = count walk rows half root'''.split()
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content %}"
    "{% if part.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part.text }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


# ---------------------------------------------------------------- questions

def sample_scene(level, w, h, kind, rng):
    """What a picture shows. Level 1 draws to scale; from level 2 on the sides are written beside the shape, and level 3
    may write the area inside the shape instead of the width."""
    n, scene = LEVELS[level]['pixels'] // 14, {'shape': 'rectangle', 'w': w, 'h': h, 'area': 0}
    if level == 1:  # on a grid of 7 pixels
        scene |= {'box': [7 * rng.randint(0, 8 - w), 7 * rng.randint(0, 8 - h), 7 * w, 7 * h], 'labels': []}
    else:
        scene['shape'] = rng.choice(['rectangle', 'triangle'])
        size = [rng.randint(28, 14 * n - 20) for _ in 'wh']
        scene['box'] = [14 + rng.randint(0, 6), 14 * n - 15 - rng.randint(0, 6) - size[1], *size]
        if level == 3 and kind != 'area' and (scene['shape'] == 'rectangle' or w * h % 2 == 0) and rng.random() < 0.5:
            scene['area'] = w * h if scene['shape'] == 'rectangle' else w * h // 2
        cells = [(0, rng.randint(0, n - 2)), (1, n - 2) if scene['area'] else (rng.randint(1, n - 1), n - 1)]
        numbers = [h, scene['area'] or w]
        scene['labels'] = [(number, 14 * x + rng.randint(0, 1), 14 * y + rng.randint(0, 3))
                           for number, (x, y) in zip(numbers, cells)]
    scene['key'] = zlib.crc32(repr(sorted(scene.items())).encode())  # everything but the colour
    scene['colour'] = rng.choice(COLOURS)
    return scene


def draw(scene, pixels):
    picture = Picture.new('RGB', (pixels, pixels), 'white')
    pen = ImageDraw.Draw(picture)
    x, y, w, h = scene['box']
    if scene['shape'] == 'rectangle':
        pen.rectangle([x, y, x + w - 1, y + h - 1], fill=scene['colour'])
    else:
        pen.polygon([(x, y), (x, y + h), (x + w, y + h)], fill=scene['colour'])
    for number, left, top in scene['labels']:  # a digit is 6 x 10 pixels; two fit into one patch of 14 x 14
        pen.rectangle([left, top, left + 7 * len(str(number)) - 1, top + 10], fill='white')
        for i, digit in enumerate(str(number)):
            for row, bits in enumerate(DIGITS[int(digit)]):
                for column in range(3):
                    if int(bits) >> (2 - column) & 1:
                        corner = left + 7 * i + 2 * column, top + 2 * row
                        pen.rectangle([*corner, corner[0] + 1, corner[1] + 1], fill='black')
    return picture


def root(n):
    """Square root in LaTeX, simplified: 25 -> 5, 20 -> 2 \\sqrt{ 5 }, 13 -> \\sqrt{ 13 }."""
    k = max(k for k in range(1, math.isqrt(n) + 1) if n % (k * k) == 0)
    return ' '.join(([str(k)] if k > 1 or n == 1 else []) + ([] if n == k * k else [rf'\sqrt{{ {n // (k * k)} }}']))


def recipes(shape, kind, w, h):
    """Right and wrong ways to work one question: two lists of (steps, result)."""
    a, b, half = max(w, h), min(w, h), shape == 'triangle'
    s, p, c = a + b, a * b, a * a + b * b
    if kind == 'area':
        result = p if not half else p // 2 if p % 2 == 0 else rf'\frac{{ {p} }}{{ 2 }}'
        rows, counts = ' + '.join([str(a)] * b), ' , '.join(str(a * i) for i in range(1, b + 1))
        ways = [f'{a} * {b} = {p}', f'rows {rows} = {p}', f'count {counts}']
        if half:
            return [(f'{way} , {p} / 2 = {result}', result) for way in ways], [(way, p) for way in ways]
        return [(way, p) for way in ways], [(f'{a} + {b} = {s}', s), (f'rows {a} + {b} = {s}', s), (f'count {a} , {s}', s)]
    if kind == 'diagonal' or half:
        x = root(c)
        ways = [f'{a} * {a} = {a * a} , {b} * {b} = {b * b} , {a * a} + {b * b} = {c} , root {x}',
                f'{a * a} + {b * b} = {c} , root {x}', f'{b * b} + {a * a} = {c} , root of {c} = {x}']
        wrong = [(f'{a} + {b} = {s}', s), (f'{a * a} + {b * b} = {c}', c), (f'walk {a} , {s}', s)]
        if kind == 'diagonal':
            return [(way, x) for way in ways], wrong
        total = s + math.isqrt(c) if math.isqrt(c) ** 2 == c else f'{s} + {x}'
        return [(f'{way} , {a} + {b} = {s} , {total}', total) for way in ways], wrong
    return ([(f'{a} + {b} = {s} , 2 * {s} = {2 * s}', 2 * s), (f'{a} + {b} + {a} + {b} = {2 * s}', 2 * s),
             (f'walk {a} , {s} , {s + a} , {2 * s}', 2 * s)],
            [(f'{a} + {b} = {s}', s), (f'walk {a} , {s}', s), (f'{a} + {b} + {a} = {s + a}', s + a)])


def truth(scene, kind):
    return str(recipes(scene['shape'], kind, scene['w'], scene['h'])[0][0][1])


def demonstration(scene, kind, sloppy, rng):
    """(what the picture shows, the rest of the worked answer); wrong with probability `sloppy`."""
    h, w, area, shape = scene['h'], scene['w'], scene['area'], scene['shape']
    facts = [f'height {h}', f'area {area}' if area else f'width {w}']
    reading = f'<thinking> {shape} {" ".join(rng.sample(facts, 2))} .'
    if area:  # two steps: first the missing width
        reading += f' 2 * {area} = {2 * area} , {2 * area} / {h} = {w} .' if shape == 'triangle' else f' {area} / {h} = {w} .'
    steps, result = rng.choice(recipes(shape, kind, w, h)[rng.random() < sloppy])
    return reading, rf' {steps} </thinking> \boxed{{ {result} }} <|im_end|>'


def questions(level, split, count, rng):
    """`count` pairs (scene, kind), all different, kinds and pairs of sides in equal shares."""
    sides = LEVELS[level]['sides']
    held_out = [(w, h) for w in sides for h in sides if (w - h) % len(sides) == 3]  # (5, 2) is held out, (2, 5) is not
    pairs = [(w, h) for w in sides for h in sides if (split == 'ood') == ((w, h) in held_out)]
    kinds = ['area', 'perimeter', 'diagonal'][:2 if level == 1 else 3]
    found, seen, i = [], set(), 0
    while len(found) < count:
        kind, (w, h) = kinds[i % len(kinds)], pairs[i // len(kinds) % len(pairs)]
        i += 1
        for _ in range(100):  # a large rectangle has few places: go on with the next pair when they are used up
            scene = sample_scene(level, w, h, kind, rng)
            right_split = split == 'ood' or (scene['key'] % 4 == 0) == (split == 'test')
            if right_split and (scene['key'], scene['colour'], kind) not in seen:
                seen.add((scene['key'], scene['colour'], kind))
                found.append((scene, kind))
                break
    return rng.sample(found, count)


# ---------------------------------------------------------------- the model

def make_tokenizer():
    words = SPECIAL + WORDS + [str(i) for i in range(200)]
    core = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token='<unk>'))
    split_marks = pre_tokenizers.Split('?', 'isolated')
    core.pre_tokenizer = pre_tokenizers.Sequence([split_marks, pre_tokenizers.WhitespaceSplit()])
    return PreTrainedTokenizerFast(
        tokenizer_object=core, unk_token='<unk>', pad_token='<|endoftext|>', eos_token='<|im_end|>',
        additional_special_tokens=SPECIAL, chat_template=TEMPLATE, clean_up_tokenization_spaces=False)


def make_model(tokenizer, hidden):
    ids = dict(zip(SPECIAL, tokenizer.convert_tokens_to_ids(SPECIAL)))
    ends = dict(bos_token_id=None, eos_token_id=ids['<|im_end|>'], pad_token_id=ids['<|endoftext|>'])
    config = Qwen2_5_VLConfig(
        text_config=dict(
            vocab_size=len(tokenizer), hidden_size=hidden, intermediate_size=3 * hidden, num_hidden_layers=2,
            num_attention_heads=hidden // 32, num_key_value_heads=1, max_position_embeddings=1024,
            rope_parameters={'rope_type': 'default', 'rope_theta': 1e4, 'mrope_section': [4, 6, 6]}, **ends),
        vision_config=dict(
            depth=1, hidden_size=48, num_heads=2, intermediate_size=96, out_hidden_size=hidden, fullatt_block_indexes=[0]),
        image_token_id=ids['<|image_pad|>'], video_token_id=ids['<|video_pad|>'],
        vision_start_token_id=ids['<|vision_start|>'], vision_end_token_id=ids['<|vision_end|>'],
        tie_word_embeddings=True, **ends)
    model = Qwen2_5_VLForConditionalGeneration(config)
    for module in model.modules():  # the default of 0.02 is made for wide models; here it costs a third of the training
        if isinstance(module, (torch.nn.Linear, torch.nn.Conv3d)) and module is not model.lm_head:
            torch.nn.init.normal_(module.weight, std=module.weight[0].numel() ** -0.5)
    torch.nn.init.normal_(model.get_input_embeddings().weight, std=0.05)
    model.generation_config = GenerationConfig(eos_token_id=ends['eos_token_id'], pad_token_id=ends['pad_token_id'])
    return model


def encode_prompt(problem, tokenizer, image_tokens):
    parts = [{'type': 'image'}, {'type': 'text', 'text': problem.replace('<image>', '')}]
    text = tokenizer.apply_chat_template([{'role': 'user', 'content': parts}], tokenize=False, add_generation_prompt=True)
    return tokenizer(text.replace('<|image_pad|>', '<|image_pad|>' * image_tokens))['input_ids']


def warm_start(model, tokenizer, processor, level, rng, effort):
    """Supervised training on worked answers: first what the picture shows, then everything."""
    spec = LEVELS[level]
    shown = questions(level, 'train', max(int(2000 * min(effort, 1)), 64), rng)
    inputs = processor([draw(scene, spec['pixels']) for scene, _ in shown], return_tensors='pt')
    grid = inputs['image_grid_thw'][:1]  # all pictures have one size
    patches = inputs['pixel_values'].view(len(shown), int(grid.prod()), -1)  # [pictures, patches, 1176]
    prompts = [encode_prompt(problem(kind), tokenizer, int(grid.prod()) // 4) for _, kind in shown]
    total, read = max(int((spec['read'] + spec['answer']) * effort), 2), int(spec['read'] * effort)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, betas=(0.9, 0.98), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total, pct_start=0.05, div_factor=10)
    queue, start = [], time.time()
    for step in range(total):
        if not queue or step == read:  # 8 batches' worth of new worked answers, sorted so that a batch has one length
            rows, batch = [], 64 if step < read else 32
            for i in rng.sample(range(len(shown)), min(8 * batch, len(shown))):
                reading, rest = demonstration(*shown[i], spec['sloppy'], rng)
                ids = tokenizer(reading if step < read else reading + rest)['input_ids']
                rows.append((i, prompts[i] + ids, len(prompts[i])))
            rows.sort(key=lambda row: len(row[1]))
            queue = [rows[j:j + batch] for j in range(0, len(rows), batch)]
            rng.shuffle(queue)
        rows = queue.pop()
        length = max(len(ids) for _, ids, _ in rows)
        ids = torch.tensor([ids + [tokenizer.pad_token_id] * (length - len(ids)) for _, ids, _ in rows])  # [B, L]
        labels = torch.tensor([[-100] * skip + ids[skip:] + [-100] * (length - len(ids)) for _, ids, skip in rows])
        # The picture stands at the same place in every row, so all rows share the 3-D positions of the first.
        is_image = (ids[:1] == model.config.image_token_id).int()
        positions = model.model.get_rope_index(ids[:1], is_image, grid)[0].expand(3, len(rows), length)
        pixels = patches[[i for i, _, _ in rows]].flatten(0, 1)  # [B * patches, 1176]
        logits = model(input_ids=ids, position_ids=positions, pixel_values=pixels,
                       image_grid_thw=grid.expand(len(rows), 3), use_cache=False).logits  # [B, L, V]
        loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        if step % 100 == 0 or step == total - 1:
            print(f'warm start: step {step + 1}/{total}, loss {loss.item():.3f}, {time.time() - start:.0f} s', flush=True)


# ---------------------------------------------------------------- files

def problem(kind):
    return f'<image>What is the {kind} of the shape?'


def prepare(folder='data/toy_geo', level=1, seed=0, effort=1.0):
    """Write `folder`/level<level>; `effort` scales the warm start (0.02: a nearly untrained model in seconds)."""
    start, target = time.time(), Path(folder) / f'level{level}'
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=target.name + '_', dir=target.parent))  # renamed when complete
    torch.manual_seed(seed)
    rng = random.Random(seed)
    features = Features({'id': Value('string'), 'problem': Value('string'), 'images': List(Image()),
                         'answer': Value('string'), 'choices': List(Value('string'))})
    for split, count in ROWS.items():
        rows = [{'id': f'{split}-{i}', 'problem': problem(kind), 'images': [draw(scene, LEVELS[level]['pixels'])],
                 'answer': truth(scene, kind), 'choices': []}
                for i, (scene, kind) in enumerate(questions(level, split, count, rng))]
        Dataset.from_list(rows, features=features).to_parquet(aside / f'{split}.parquet')
    tokenizer, processor = make_tokenizer(), Qwen2VLImageProcessorPil()
    model = make_model(tokenizer, LEVELS[level]['hidden'])
    warm_start(model, tokenizer, processor, level, rng, effort)
    for part in model, tokenizer, processor:
        part.save_pretrained(aside / 'warm_start')
    shutil.rmtree(target, ignore_errors=True)
    aside.rename(target)
    print(f'{target}: {ROWS}, {model.num_parameters():,} parameters, {time.time() - start:.0f} s')


if __name__ == '__main__':
    parser = argparse.ArgumentParser()
    parser.add_argument('--folder', default='data/toy_geo')
    parser.add_argument('--level', type=int, default=1, choices=LEVELS)
    parser.add_argument('--seed', type=int, default=0)
    prepare(**vars(parser.parse_args()))
