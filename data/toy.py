"""A geometry task and a small vision-language model, made on the spot: nothing to download, no GPU needed.

prepare(level=1) writes data/toy_geo/level1/{train,test,ood}.parquet and warm_start/: a real Qwen2.5-VL,
trained on worked answers, its image processor and tokenizer. What to know before quoting numbers:
* The teacher is sloppy: a share of the worked answers follows wrong recipes. RL gains much by dropping those.
* Each kind of question is worked in three styles, so that answers of equal reward differ in structure.
* The text of a question does not tell its answer: the best constant is right in less than a quarter of cases.
* test has pictures that neither worked answers nor train show, ood pairs of sides that they never show.
Expect 45-95 s; sampled accuracy 0.33, 0.17, 0.21 on levels 1, 2, 3; 0.92, 0.61, 0.55 after 80 steps of RL.
"""
import random
import shutil
import time
from pathlib import Path
from zlib import crc32

import torch
import transformers
from datasets import Dataset, List, Value
from PIL import Image, ImageDraw
from tokenizers import Tokenizer, models, pre_tokenizers

LEVELS = {  # picture size in pixels, lengths of sides, steps of warm start, shares of wrong recipes
    1: dict(pixels=56, sides=range(2, 7), steps=800, sloppy=dict(area=.65, perimeter=.65)),
    2: dict(pixels=56, sides=range(2, 9), steps=400, sloppy=dict(area=.4, perimeter=.7, diagonal=.9)),
    3: dict(pixels=84, sides=range(2, 10), steps=720, sloppy=dict(area=.4, perimeter=.7, diagonal=.95)),
}
ROWS = {'train': 400, 'test': 200, 'ood': 100}
PROBLEM = '<image>What is the {} of the shape?'
COLOURS = ['mediumblue', 'seagreen', 'firebrick', 'purple', 'teal', 'chocolate']  # light ones are hard to see
DIGITS = '75557 26227 71747 71717 55711 74717 74757 71111 75757 75717'.split()  # five rows of three bits each
MARKS = 'endoftext', 'im_start', 'im_end', 'vision_start', 'vision_end', 'image_pad', 'video_pad'
WORDS = r'''<unk> system user assistant What is the area perimeter diagonal of shape? <thinking> </thinking>
    . , + * / = \boxed{ \sqrt{ \frac{ }{ } rectangle triangle width height count walk rows root'''.split()
TEMPLATE = r"""{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' }}
{%- if message.content is string %}{{ message.content }}{% else %}{% for part in message.content %}
{%- if part.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part.text }}{% endif %}
{%- endfor %}{% endif %}{{ '<|im_end|>\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""


def sample_scene(level, w, h, kind, rng):
    """A picture and what it shows. Level 1 draws to scale, from level 2 on sides are given in numbers;
    on level 3 the width may be missing: the number inside is the area, and the width has to be worked out."""
    shape, area, labels, pixels = 'rectangle', 0, [], LEVELS[level]['pixels']
    if level == 1:  # on a grid of 7 pixels
        left, top = 7 * rng.randint(0, 8 - w), 7 * rng.randint(0, 8 - h)
        right, bottom = left + 7 * w - 1, top + 7 * h - 1
    else:
        shape, n = rng.choice(['rectangle', 'triangle']), pixels // 14
        left, bottom = 14 + rng.randint(0, 6), pixels - 15 - rng.randint(0, 6)
        right, top = left + rng.randint(27, pixels - 21), bottom - rng.randint(27, pixels - 21)
        if level == 3 and kind != 'area' and (shape == 'rectangle' or w * h % 2 == 0) and rng.random() < 0.5:
            area = w * h if shape == 'rectangle' else w * h // 2
        labels = [(h, 0, n // 2 - 1), (area, 1, n - 2) if area else (w, n // 2, n - 1)]
    corners = [(left, top), (left, bottom), (right, bottom), (right, top)][:3 if shape == 'triangle' else 4]
    scene = {'shape': shape, 'w': w, 'h': h, 'area': area, 'key': crc32(repr([corners, labels]).encode()),
             'colour': rng.choice(COLOURS), 'picture': Image.new('RGB', (pixels, pixels), 'white')}
    ImageDraw.Draw(scene['picture']).polygon(corners, fill=scene['colour'])
    for number, column, row in labels:
        for i, digit in enumerate(str(number)):  # 6 x 10 pixels: two digits fit into a patch of 14 x 14
            dots = bytes(255 * (int(bits) >> k & 1 ^ 1) for bits in DIGITS[int(digit)] for k in (2, 1, 0))
            glyph = Image.frombytes('L', (3, 5), dots).resize((6, 10), Image.Resampling.NEAREST)
            scene['picture'].paste(glyph, (14 * column + 7 * i, 14 * row + 2))
    return scene


def recipes(shape, kind, w, h):
    """Right and wrong ways to work a question; each ends with its result."""
    a, b = max(w, h), min(w, h)  # the longer side first: a held-out picture needs no new multiplication
    s, p, c = a + b, a * b, a * a + b * b
    k = max(k for k in range(1, c) if c % (k * k) == 0)  # root of 20 = 2 \sqrt{ 5 }
    x = str(k) if c == k * k else (f'{k} ' if k > 1 else '') + rf'\sqrt{{ {c // (k * k)} }}'
    wrong = [f'{a} + {b} = {s}', f'walk {a} , {s}']
    if kind == 'area':
        right = [f'{a} * {b} = {p}', f'rows {" + ".join([str(a)] * b)} = {p}',
                 f'count {" , ".join(str(a * i) for i in range(1, b + 1))}']
        if shape == 'rectangle':
            return right, wrong + [f'rows {a} + {b} = {s}']
        half = rf'\frac{{ {p} }}{{ 2 }}' if p % 2 else p // 2
        return [f'{way} , {p} / 2 = {half}' for way in right], right
    if kind == 'perimeter' and shape == 'rectangle':
        right = [f'{a} + {b} + {a} + {b} = {2 * s}', f'walk {a} , {s} , {s + a} , {2 * s}']
        return right + [f'{a} + {b} = {s} , 2 * {s} = {2 * s}'], wrong + [f'{a} + {b} + {a} = {s + a}']
    right = [f'{a} * {a} = {a * a} , {b} * {b} = {b * b} , {a * a} + {b * b} = {c} , root = {x}',
             f'{a * a} + {b * b} = {c} , root = {x}', f'{b * b} + {a * a} = {c} , root of {c} = {x}']
    if kind == 'perimeter':  # of a triangle
        right = [f'{way} , {a} + {b} = {s} , {s + int(x) if x.isdigit() else f"{s} + {x}"}' for way in right]
    return right, wrong + [f'{a * a} + {b * b} = {c}']


def demonstration(scene, kind, sloppy, rng):
    """A worked answer and its result; the recipe is a wrong one with probability `sloppy`."""
    shape, w, h, area = (scene[key] for key in ('shape', 'w', 'h', 'area'))
    facts = ' '.join(rng.sample([f'height {h}', f'area {area}' if area else f'width {w}'], 2))
    if area:  # first find the width
        facts += f' , {area} / {h} = {w}' if shape == 'rectangle' else f' , 2 * {area} / {h} = {w}'
    steps = rng.choice(recipes(shape, kind, w, h)[rng.random() < sloppy])
    result = steps.replace(' , ', ' = ').split(' = ')[-1]
    return rf'<thinking> {shape} {facts} . {steps} </thinking> \boxed{{ {result} }} <|im_end|>', result


def sample_questions(level, split, count, rng):
    """`count` distinct (scene, kind) with pictures of the split; kinds and pairs of sides in equal shares."""
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
    special = [f'<|{mark}|>' for mark in MARKS]
    vocabulary = {word: i for i, word in enumerate(special + WORDS + [str(number) for number in range(200)])}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token='<unk>'))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=core, unk_token='<unk>', pad_token='<|endoftext|>', eos_token='<|im_end|>',
        additional_special_tokens=special, chat_template=TEMPLATE)
    pad, _, end, *marks = range(len(MARKS))
    ends = {'bos_token_id': None, 'eos_token_id': end, 'pad_token_id': pad, 'initializer_range': 0.1}
    text = {'vocab_size': len(vocabulary), 'hidden_size': 64, 'intermediate_size': 192,
            'num_hidden_layers': 2, 'num_attention_heads': 2, 'num_key_value_heads': 1, **ends,
            'rope_parameters': {'rope_type': 'default', 'rope_theta': 1e4, 'mrope_section': [4, 6, 6]}}
    vision = {'depth': 1, 'hidden_size': 48, 'num_heads': 2, 'intermediate_size': 96, 'out_hidden_size': 64,
              'initializer_range': 0.1}  # the library's 0.02 suits wide models: this one learns far slower
    names = 'vision_start_token_id', 'vision_end_token_id', 'image_token_id', 'video_token_id'
    model = transformers.Qwen2_5_VLForConditionalGeneration(transformers.Qwen2_5_VLConfig(
        text_config=text, vision_config=vision, tie_word_embeddings=True, **ends, **dict(zip(names, marks))))
    model.generation_config = transformers.GenerationConfig(eos_token_id=end, pad_token_id=pad)
    return model, tokenizer, transformers.Qwen2VLImageProcessorPil()


def warm_start(model, tokenizer, processor, level, rng, effort):
    """Supervised training on worked answers. Its questions come from the same pictures as those of train."""
    spec, start, steps = LEVELS[level], time.time(), 1 + round(effort * LEVELS[level]['steps'])
    shown = sample_questions(level, 'train', round(2000 * min(1, effort)) + 64, rng)
    inputs = processor([scene['picture'] for scene, _ in shown], return_tensors='pt')
    pixels = inputs['pixel_values'].unflatten(0, (len(shown), -1))  # [pictures, patches, 1176]
    image = f'<|vision_start|>{"<|image_pad|>" * (pixels.shape[1] // 4)}<|vision_end|>'
    chats = [[{'role': 'user', 'content': PROBLEM.replace('<image>', image).format(k)}] for _, k in shown]
    prompts = tokenizer.apply_chat_template(chats, tokenize=False, add_generation_prompt=True)
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98), weight_decay=0.01)
    rate = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, steps, pct_start=0.05, cycle_momentum=False)
    for step in range(steps):
        rows = rng.sample(range(len(shown)), 32)
        texts = [prompts[i] + demonstration(*shown[i], spec['sloppy'][shown[i][1]], rng)[0] for i in rows]
        ids = tokenizer(texts, padding=True, return_tensors='pt')['input_ids']  # [B, L]
        prompt = (ids == tokenizer.convert_tokens_to_ids('assistant')).cumsum(1) == 0  # [B, L]
        labels = ids.masked_fill(prompt | (ids == tokenizer.pad_token_id), -100)  # [B, L]
        types = (ids == model.config.image_token_id).int()  # [B, L], for the 3-D positions
        loss = model(input_ids=ids, mm_token_type_ids=types, pixel_values=pixels[rows].flatten(0, 1),
                     image_grid_thw=inputs['image_grid_thw'][rows], labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        rate.step()
        if step % 100 == 0 or step == steps - 1:
            print(f'warm start: step {step}, loss {loss.item():.3f}, {time.time() - start:.0f} s', flush=True)


def prepare(folder='data/toy_geo', level=1, seed=0, effort=1.0):
    """Write `folder`/level1. `effort` scales the warm start: 0.02 makes an untrained model within seconds."""
    start, target, rng = time.time(), Path(folder) / f'level{level}', random.Random(seed)
    aside = target.with_name(f'{target.name}_{time.time_ns()}')  # renamed when complete
    aside.mkdir(parents=True)
    for split, count in ROWS.items():
        rows = [{'id': f'{split}-{i}', 'problem': PROBLEM.format(kind), 'images': [scene['picture']],
                 'answer': demonstration(scene, kind, 0, rng)[1], 'choices': []}
                for i, (scene, kind) in enumerate(sample_questions(level, split, count, rng))]
        table = Dataset.from_list(rows).cast_column('choices', List(Value('string')))
        table.to_parquet(aside / f'{split}.parquet')
    with torch.random.fork_rng(devices=[]):  # leaves the caller's random numbers alone
        torch.manual_seed(seed)
        parts = make_model()
        warm_start(*parts, level, rng, effort)
    for part in parts:
        part.save_pretrained(aside / 'warm_start')
    shutil.rmtree(target, ignore_errors=True)
    aside.rename(target)
    print(f'{target}: rows {ROWS}, {parts[0].num_parameters():,} parameters, {time.time() - start:.0f} s')
