"""Geometry tasks and a small vision-language model, made on the spot: nothing to download, no GPU needed.

prepare(level=1) writes data/toy_geo/level1/{train,test,ood}.parquet and warm_start/: a real Qwen2.5-VL, its
image processor and tokenizer, trained for 45-70 s on worked answers. toy.toml has texts and sizes. No text
alone tells an answer. Pictures of test are not in train nor worked, pairs of sides of ood nowhere else."""
import random
import tomllib
from itertools import cycle, product
from pathlib import Path
from zlib import crc32

import torch
import transformers
from datasets import Dataset, Value
from PIL import Image, ImageDraw
from tokenizers import Tokenizer, models, pre_tokenizers
from tqdm import trange

TOY = tomllib.loads(Path(__file__).with_name('toy.toml').read_text('utf-8'))
ANSWERS, LEVELS = TOY['answers'], {int(level): table for level, table in TOY['levels'].items()}

def sample_scene(level, w, h, rng):
    """A shape w wide and h high: drawn to scale on levels 1 and 3, with its sides as digits on level 2."""
    shape, labels = 'rectangle' if level == 1 else rng.choice(['rectangle', 'triangle']), []
    if level == 2:
        labels = [(h, 0, 1), (w, 2, 3)]  # digit, column, row
        left, bottom = 14 + rng.randint(0, 6), 41 - rng.randint(0, 6)
        right, top = left + rng.randint(27, 35), bottom - rng.randint(27, 35)
    else:  # on a grid of 7 pixels
        left, top = 7 * rng.randint(0, 8 - w), 7 * rng.randint(0, 8 - h)
        right, bottom = left + 7 * w - 1, top + 7 * h - 1
    corners = [(left, top), (left, bottom), (right, bottom), (right, top)][:3 if shape == 'triangle' else 4]
    picture = Image.new('RGB', (56, 56), 'white')  # 4 x 4 patches of 14 x 14
    draw = ImageDraw.Draw(picture)
    draw.polygon(corners, fill=rng.choice(TOY['colours']))
    for digit, column, row in labels:
        glyph = Image.frombytes('1', (3, 5), bytes.fromhex(TOY['digits'][digit])).resize((6, 10))
        draw.bitmap((14 * column, 14 * row + 2), glyph, fill='black')
    return dict(shape=shape, w=w, h=h, picture=picture, key=crc32(repr([corners, labels]).encode()),
                box=[round(1000 * edge / 56) for edge in (left, top, right + 1, bottom + 1)])

def demonstration(scene, kind, sloppy, rng):
    """A worked answer and its result; the recipe is a wrong one with probability `sloppy`."""
    shape, (b, a) = scene['shape'], sorted([scene['w'], scene['h']])
    s, p, cc = a + b, a * b, a * a + b * b
    k = max(k for k in range(1, cc) if cc % (k * k) == 0)  # root of 20 = 2 \sqrt{ 5 }
    c = k if k * k == cc else rf'\sqrt{{ {cc} }}' if k == 1 else rf'{k} \sqrt{{ {cc // (k * k)} }}'
    values = dict(scene, a=a, b=b, s=s, s3=s + a, s4=2 * s, p=p, aa=a * a, bb=b * b, cc=cc, c=c,
                  half=rf'\frac{{ {p} }}{{ 2 }}' if p % 2 else p // 2, sum=' + '.join([str(a)] * b),
                  count=' , '.join(map(str, range(a, p + 1, a))), abc=s + k if c == k else f'{s} + {c}')
    facts = ' '.join(rng.sample(ANSWERS['facts'], 2)).format(**values)
    steps = rng.choice(ANSWERS[shape][kind]['wrong' if rng.random() < sloppy else 'right']).format(**values)
    result = steps.replace(' , ', ' = ').split(' = ')[-1]
    return ANSWERS['whole'].format(shape=shape, facts=facts, steps=steps, result=result), result

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
    """-> untrained model, tokenizer (a token for each of its words in toy.toml), image processor."""
    words = TOY['tokenizer']['additional_special_tokens'] + TOY['words'].split()
    core = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token='<unk>'))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=core, **TOY['tokenizer'])
    model = transformers.Qwen2_5_VLForConditionalGeneration(transformers.Qwen2_5_VLConfig(
        text_config=TOY['text'] | {'bos_token_id': None}, vision_config=TOY['vision'], **TOY['model']))
    return model, tokenizer, transformers.Qwen2VLImageProcessorPil()

def prepare(folder='data/toy_geo', level=1, seed=0, effort=1.0):
    """Write `folder`/level1. `effort` scales the warm start: 0.02 makes an untrained model within seconds."""
    target, rng, problem = Path(folder) / f'level{level}', random.Random(seed), LEVELS[level]['problem']
    new = target.with_name(f'{target.name}_{random.SystemRandom().getrandbits(32)}')  # renamed at the end
    new.mkdir(parents=True)
    for split, count in TOY['rows'].items():
        rows = [{'id': f'{split}-{i}', 'problem': problem.format(kind, **scene), 'images': [scene['picture']],
                 'answer': demonstration(scene, kind, 0, rng)[1], 'choices': [], 'box': scene['box']}
                for i, (scene, kind) in enumerate(sample_questions(level, split, count, rng))]
        Dataset.from_list(rows).cast_column('choices', [Value('string')]).to_parquet(new / f'{split}.parquet')
    with torch.random.fork_rng(devices=[]):  # leaves the caller's random numbers alone
        torch.manual_seed(seed)
        model, tokenizer, processor = make_model()
    shown = sample_questions(level, 'train', round(2000 * min(1, effort)) + 64, rng)  # for the warm start
    chat = [{'role': 'user', 'content': problem.replace('<image>', TOY['picture'])}]
    prompt = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    wrong, steps = LEVELS[level]['wrong'], 1 + round(effort * LEVELS[level]['steps'])
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98), weight_decay=0.01)
    rate = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, steps, pct_start=0.05, cycle_momentum=False)
    for _ in trange(steps, desc=f'warm start of {target}'):
        batch = rng.sample(shown, 32)
        texts = [prompt.format(kind, **scene) + demonstration(scene, kind, wrong[kind], rng)[0]
                 for scene, kind in batch]
        pictures = processor([scene['picture'] for scene, _ in batch], return_tensors='pt')
        ids = tokenizer(texts, padding=True, return_tensors='pt')['input_ids']  # [B, L]
        asked = (ids == tokenizer.convert_tokens_to_ids('assistant')).cumsum(1) == 0  # [B, L]
        labels = ids.masked_fill(asked | (ids == tokenizer.pad_token_id), -100)  # [B, L]
        seen = (ids == model.config.image_token_id).int()  # [B, L]
        model(input_ids=ids, labels=labels, mm_token_type_ids=seen, **pictures).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        rate.step()
    for part in model, tokenizer, processor:
        part.save_pretrained(new / 'warm_start')
    new.rename(target)
