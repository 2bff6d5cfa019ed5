"""A geometry task and a small vision-language model, made on the spot: nothing to download, no GPU needed.

prepare(level=1) writes data/toy_geo/level1/{train,test,ood}.parquet and warm_start/: a real Qwen2.5-VL, its
image processor and tokenizer, trained on worked answers. They go one of three right ways, so that answers of
equal reward differ, or, as often as LEVELS says, a wrong one, which RL then drops: much of its gain. No text
alone tells an answer. Pictures of test are neither in train nor worked, pairs of sides of ood nowhere else.
Expect 45-70 s; sampled accuracy 0.33 on level 1, 0.17 on level 2, and after 80 steps of RL 0.92 and 0.61."""
import random
import shutil
from itertools import cycle, product
from pathlib import Path
from zlib import crc32

import torch
import transformers
from datasets import Dataset, List, Value
from PIL import Image, ImageDraw
from tokenizers import Tokenizer, models, pre_tokenizers
from tqdm import trange

LEVELS = {1: {'sides': range(2, 7), 'steps': 800, 'wrong': {'area': 0.65, 'perimeter': 0.65}},
          2: {'sides': range(2, 9), 'steps': 400, 'wrong': {'area': 0.4, 'perimeter': 0.7, 'diagonal': 0.9}}}
ROWS = {'train': 400, 'test': 200, 'ood': 100}
PROBLEM = '<image>What is the {} of the shape?'
COLOURS = ['mediumblue', 'seagreen', 'firebrick', 'purple', 'teal', 'chocolate']  # light ones are hard to see
DIGITS = '75557 26227 71747 71717 55711 74717 74757 71111 75757 75717'.split()  # five rows of three bits each
WORDS = r'''<|endoftext|> <|im_start|> <|im_end|> <|vision_start|> <|vision_end|> <|image_pad|> <|video_pad|>
    <unk> system user assistant What is the area perimeter diagonal of shape? <thinking> </thinking>
    . , + * / = \boxed{ \sqrt{ \frac{ }{ } rectangle triangle width height count walk rows root'''.split()
TEMPLATE = r"""{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' }}
{%- for part in ([{'text': message.content}] if message.content is string else message.content) %}
{{- part.text if 'text' in part else '<|vision_start|><|image_pad|><|vision_end|>' }}{% endfor %}
{{- '<|im_end|>\n' }}{% endfor %}{{ '<|im_start|>assistant\n' if add_generation_prompt }}"""

def sample_scene(level, w, h, rng):
    """A shape w wide and h high: drawn to scale on level 1, with its sides as digits on level 2."""
    shape, labels = 'rectangle', []
    if level == 1:  # on a grid of 7 pixels
        left, top = 7 * rng.randint(0, 8 - w), 7 * rng.randint(0, 8 - h)
        right, bottom = left + 7 * w - 1, top + 7 * h - 1
    else:
        shape, labels = rng.choice(['rectangle', 'triangle']), [(h, 0, 1), (w, 2, 3)]  # digit, column, row
        left, bottom = 14 + rng.randint(0, 6), 41 - rng.randint(0, 6)
        right, top = left + rng.randint(27, 35), bottom - rng.randint(27, 35)
    corners = [(left, top), (left, bottom), (right, bottom), (right, top)][:3 if shape == 'triangle' else 4]
    picture = Image.new('RGB', (56, 56), 'white')  # 4 x 4 patches of 14 x 14
    draw = ImageDraw.Draw(picture)
    draw.polygon(corners, fill=rng.choice(COLOURS))
    for digit, column, row in labels:
        glyph = Image.frombytes('1', (3, 5), bytes(int(bits) << 5 for bits in DIGITS[digit])).resize((6, 10))
        draw.bitmap((14 * column, 14 * row + 2), glyph, fill='black')
    return dict(shape=shape, w=w, h=h, picture=picture, key=crc32(repr([corners, labels]).encode()))

def demonstration(scene, kind, sloppy, rng):
    """A worked answer and its result; the recipe is a wrong one with probability `sloppy`."""
    shape, w, h = scene['shape'], scene['w'], scene['h']
    a, b = max(w, h), min(w, h)  # the longer side first: a held-out picture needs no new multiplication
    s, p, c = a + b, a * b, a * a + b * b
    k = max(k for k in range(1, c) if c % (k * k) == 0)  # root of 20 = 2 \sqrt{ 5 }
    root = str(k) if c == k * k else (f'{k} ' if k > 1 else '') + rf'\sqrt{{ {c // (k * k)} }}'
    area = [f'{a} * {b} = {p}', f'rows {" + ".join([str(a)] * b)} = {p}',
            f'count {" , ".join(str(a * i) for i in range(1, b + 1))}']
    perimeter = [f'{a} + {b} + {a} + {b} = {2 * s}', f'walk {a} , {s} , {s + a} , {2 * s}',
                 f'{a} + {b} = {s} , 2 * {s} = {2 * s}']
    diagonal = [f'{a} * {a} = {a * a} , {b} * {b} = {b * b} , {a * a} + {b * b} = {c} , root = {root}',
                f'{a * a} + {b * b} = {c} , root = {root}', f'{b * b} + {a * a} = {c} , root of {c} = {root}']
    wrong = [f'{a} + {b} = {s}', f'walk {a} , {s}']
    no_root = wrong + [f'{a * a} + {b * b} = {c}']
    recipes = {'area': (area, wrong + [f'rows {a} + {b} = {s}']), 'diagonal': (diagonal, no_root),
               'perimeter': (perimeter, wrong + [f'{a} + {b} + {a} = {s + a}'])}  # results come last
    if shape == 'triangle':
        half = rf'\frac{{ {p} }}{{ 2 }}' if p % 2 else p // 2
        total = s + int(root) if root.isdigit() else f'{s} + {root}'
        recipes['area'] = [f'{way} , {p} / 2 = {half}' for way in area], area
        recipes['perimeter'] = [f'{way} , {a} + {b} = {s} , {total}' for way in diagonal], no_root
    facts = ' '.join(rng.sample([f'height {h}', f'width {w}'], 2))
    steps = rng.choice(recipes[kind][rng.random() < sloppy])
    result = steps.replace(' , ', ' = ').split(' = ')[-1]
    return rf'<thinking> {shape} {facts} . {steps} </thinking> \boxed{{ {result} }} <|im_end|>', result

def sample_questions(level, split, count, rng):
    """`count` distinct (scene, kind) with pictures of the split; kinds and pairs of sides in equal shares."""
    sides, kinds, found = LEVELS[level]['sides'], LEVELS[level]['wrong'], {}
    pairs = [(w, h) for w in sides for h in sides if ((w - h) % len(sides) == 3) == (split == 'ood')]
    for (w, h), kind in cycle(product(pairs, kinds)):
        for _ in range(100):  # a large rectangle has few places: when they are used up, go on
            scene = sample_scene(level, w, h, rng)
            name = scene['picture'].tobytes(), kind
            if name not in found and (split == 'ood' or (scene['key'] % 4 == 0) == (split == 'test')):
                found[name] = scene, kind
                break
        if len(found) == count:
            return rng.sample(list(found.values()), count)

def make_model():
    """-> untrained model, tokenizer (a word or a whole number is a token), image processor."""
    words = WORDS + [str(number) for number in range(200)]
    core = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token='<unk>'))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=core, unk_token='<unk>', pad_token='<|endoftext|>', eos_token='<|im_end|>',
        additional_special_tokens=WORDS[:7], chat_template=TEMPLATE)
    text = dict(vocab_size=len(words), hidden_size=64, intermediate_size=192, num_hidden_layers=2,
                num_attention_heads=2, num_key_value_heads=1, initializer_range=0.1, bos_token_id=None,
                eos_token_id=2, pad_token_id=0, rope_parameters=dict(rope_theta=1e4, mrope_section=[4, 6, 6]))
    vision = dict(depth=1, hidden_size=48, intermediate_size=96, num_heads=2, out_hidden_size=64,
                  initializer_range=0.1)  # the library's 0.02 suits wide models: this one learns far slower
    model = transformers.Qwen2_5_VLForConditionalGeneration(transformers.Qwen2_5_VLConfig(
        text_config=text, vision_config=vision, tie_word_embeddings=True,
        vision_start_token_id=3, vision_end_token_id=4, image_token_id=5, video_token_id=6))
    return model, tokenizer, transformers.Qwen2VLImageProcessorPil()

def prepare(folder='data/toy_geo', level=1, seed=0, effort=1.0):
    """Write `folder`/level1. `effort` scales the warm start: 0.02 makes an untrained model within seconds."""
    if level not in LEVELS:
        raise SystemExit(f'toy_level = {level}: it must be one of {list(LEVELS)}')
    target, rng = Path(folder) / f'level{level}', random.Random(seed)
    aside = target.with_name(f'{target.name}_{random.SystemRandom().getrandbits(32)}')  # renamed at the end
    aside.mkdir(parents=True)
    for split, count in ROWS.items():
        rows = [{'id': f'{split}-{i}', 'problem': PROBLEM.format(kind), 'images': [scene['picture']],
                 'answer': demonstration(scene, kind, 0, rng)[1], 'choices': []}
                for i, (scene, kind) in enumerate(sample_questions(level, split, count, rng))]
        table = Dataset.from_list(rows).cast_column('choices', List(Value('string')))
        table.to_parquet(aside / f'{split}.parquet')
    with torch.random.fork_rng(devices=[]):  # leaves the caller's random numbers alone
        torch.manual_seed(seed)
        model, tokenizer, processor = make_model()
    shown = sample_questions(level, 'train', round(2000 * min(1, effort)) + 64, rng)  # for the warm start
    inputs = processor([scene['picture'] for scene, _ in shown], return_tensors='pt')
    pixels, grids = inputs['pixel_values'].unflatten(0, (-1, 16)), inputs['image_grid_thw']  # [., 16, 1176]
    image = '<|vision_start|>' + '<|image_pad|>' * 4 + '<|vision_end|>'  # four patches make a token
    chat = [{'role': 'user', 'content': PROBLEM.replace('<image>', image)}]
    prompt = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    wrong, steps = LEVELS[level]['wrong'], 1 + round(effort * LEVELS[level]['steps'])
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98), weight_decay=0.01)
    rate = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, steps, pct_start=0.05, cycle_momentum=False)
    for _ in trange(steps, desc=f'warm start of {target}'):
        rows = rng.sample(range(len(shown)), 32)
        texts = [prompt.format(kind) + demonstration(scene, kind, wrong[kind], rng)[0]
                 for scene, kind in (shown[i] for i in rows)]
        ids = tokenizer(texts, padding=True, return_tensors='pt')['input_ids']  # [B, L]
        asked = (ids == tokenizer.convert_tokens_to_ids('assistant')).cumsum(1) == 0  # [B, L]
        labels = ids.masked_fill(asked | (ids == tokenizer.pad_token_id), -100)  # [B, L]
        model(input_ids=ids, labels=labels, mm_token_type_ids=(ids == model.config.image_token_id).int(),
              pixel_values=pixels[rows].flatten(0, 1), image_grid_thw=grids[rows]).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        rate.step()
    for part in model, tokenizer, processor:
        part.save_pretrained(aside / 'warm_start')
    shutil.rmtree(target, ignore_errors=True)
    aside.rename(target)
