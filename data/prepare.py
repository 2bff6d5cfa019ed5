"""Public data sets -> data/NAME/{train,test}.parquet, in the one schema that train.py and eval.py read.

In:  a data set of recipes.toml, from the Hub or --source: a Hub id, folder, parquet or json(l) file.
Out: id, problem (<image> for a picture), images, answer, choices, box (ratios; of what to find), part (of
     the set, to be reported by itself), decimals (that count), look (of picture or text, to find copies).
Run: python data/prepare.py geo3k, or: python data/prepare.py file --source=mine.jsonl   (rows of your own)
Without a test split the last tenth becomes it. Test questions in the training set of a neighbour are told."""
import argparse
import hashlib
import re
import tomllib
from itertools import islice, product
from pathlib import Path

import numpy
import pandas
from datasets import Features, Image, List, Value, concatenate_datasets, load_dataset
from PIL import Image as Picture
from pyarrow import Table, parquet
from tqdm import tqdm

RECIPES = tomllib.loads(Path(__file__).with_name('recipes.toml').read_text())
FEATURES = Features(id=Value('string'), problem=Value('string'), images=List(Image()), answer=Value('string'),
                    choices=List(Value('string')), box=List(Value('float64')), part=Value('string'),
                    decimals=Value('int64'), look=Value('string'))

def arithmetic():
    """2,200 different sums of two numbers of two digits; in every other one a number has one digit."""
    import reasoning_gym  # pip install reasoning-gym
    sums = {3: {}, 4: {}}  # digits in all -> {problem: answer}; dictionaries, as the generator repeats itself
    for row in reasoning_gym.create_dataset('basic_arithmetic', **RECIPES['arithmetic']['generator']):
        a, b = row['metadata']['expression'].split(' + ')
        if len(a + b) in sums and not {'0', '100'} & {a, b}:
            sums[len(a + b)][f'What is {a} + {b}?'] = row['answer']
    rows = [{'problem': p, 'answer': a} for pair in zip(sums[3].items(), sums[4].items()) for p, a in pair]
    return {'train': rows[:2000], 'test': rows[2000:2200]}

def load(recipe, given):
    """Rows of `given`, a file, folder or Hub id, or else of the recipe's source -> {split: rows}."""
    path, *config = [given] if given else recipe['source']
    kind, split = 'parquet' if path.endswith('.parquet') else 'json', None if given else recipe.get('splits')
    try:
        sets = load_dataset(kind, data_files=path) if Path(path).is_file() else load_dataset(
            path, *config, split=split)
    except (ConnectionError, FileNotFoundError) as error:
        raise SystemExit(f'cannot read {path!r}: {error}\nTo use a copy, pass --source=FILE') from error
    if 'train' not in recipe.get('rows', ['train']):
        return {'test': sets.get('test') or next(iter(sets.values()))}
    if 'train' not in sets:
        raise SystemExit(f'{path} has no train split but {list(sets)}: name a file with --source')
    if 'test' not in sets or 'seed' in recipe:
        train, test = sets['train'], [sets['test']] if 'test' in sets else []
        train = train.shuffle(recipe['seed']) if 'seed' in recipe else train
        cut = 9 * (len(train) + sum(map(len, test))) // 10
        print(f'{path}: its {"random" if "seed" in recipe else "first"} 90 % are train')
        test += [train.select(range(cut, len(train)))]
        sets = {'train': train.select(range(cut)), 'test': concatenate_datasets(test)}
    return sets

def flatten(picture, folder):
    """A picture, {'bytes', 'path'} or path -> RGB picture, see-through parts white (black in the paper)."""
    picture = str(folder / picture) if isinstance(picture, str) else picture
    picture = Image().decode_example(Image().encode_example(picture)).convert('RGBA')
    page = Picture.new('RGBA', picture.size, 'white')
    return Picture.alpha_composite(page, picture).convert('RGB')

def field(recipe, row, key):
    """What a recipe takes from a row for `key`, as recipes.toml explains; None where neither knows it."""
    form = recipe.get(key, key)
    if isinstance(form, list):  # the first column with something in it
        form = next((name for name in form if row.get(name) not in (None, '')), form[-1])
    if form in row or not isinstance(form, str) or '{' in form:
        return row[form] if form in row else form.format_map(row) if isinstance(form, str) else form
    if key in recipe or key in ('problem', 'answer'):
        raise KeyError(form)

def convert(recipe, row, folder):
    """Row of a source -> row of the schema; a ValueError says why it is not usable."""
    keys = 'id', 'part', 'decimals', 'box', 'problem', 'answer', 'images', 'choices'
    made = {key: field(recipe, row, key) for key in keys}
    *_, box, problem, answer, images, choices = made.values()
    images = images if isinstance(images, list) else [images] if images else []
    lines = re.findall(r'\n([A-H])[:.](.*)', field(recipe, row, 'choices_in') or '')
    if 'ABCDEFGH'.startswith(''.join(letter for letter, _ in lines)):  # from A on, without a gap
        choices = choices or [choice for _, choice in lines]
    problem = re.sub(recipe.get('cut', '(?!)'), '', problem or '', flags=re.DOTALL)
    if choices and 'list_choices' in recipe:
        problem += ''.join(f'\n({letter}) {choice}' for letter, choice in zip('ABCDEFGH', choices))
        problem += '\nAnswer with the letter of the right choice.'
    if images and '<image>' not in problem:  # but perhaps <image1> where they are
        problem = '<image>' * len(images) + re.sub(r' ?<image\d+>', '', problem)
    if 'whole_numbers' in recipe and row['answer_type'] == 'integer':
        made['decimals'] = 0
    if choices and 'text_answers' in recipe:
        answer = 'ABCDEFGH'[choices.index(answer)]
    if 'boxes' in recipe:  # to be answered in thousandths, as grounding models write them
        left, top, right, bottom = box or []
        if not (answer and 0 <= left < right <= 1 and 0 <= top < bottom <= 1):
            raise ValueError(f'{answer!r} at {box}: needs text, left < right and top < bottom in [0, 1]')
        answer = [round(1000 * ratio) for ratio in box]
    answer = '' if answer is None else str(answer)
    repairs = recipe.get('repair', [])
    for pattern, new in RECIPES[repairs]['repair'] if isinstance(repairs, str) else repairs:
        answer = re.sub(pattern, new, answer, flags=re.DOTALL)
    problem, answer = problem.strip(), answer.strip()
    if not problem or not answer or problem.count('<image>') != len(images):
        raise ValueError(f'problem {problem[:50]!r} with {len(images)} pictures, answer {answer!r}')
    images, words = [flatten(picture, folder) for picture in images], re.findall(r'\w+|\S', problem.lower())
    look = hashlib.sha256(' '.join(words).encode()).hexdigest()  # 256 bits of the text, or
    if images:  # of 16 x 16 points of the first picture, dark or light
        grey = numpy.asarray(images[0].convert('L').resize((16, 16), Picture.Resampling.BOX))
        look = numpy.packbits(grey < grey.mean()).tobytes().hex()
    return made | {
        'problem': problem, 'answer': answer, 'choices': [str(choice).strip() for choice in choices or []],
        'images': [Image().encode_example(image) for image in images], 'look': look, 'box': box or [],
        'decimals': made['decimals'] if made['decimals'] == made['decimals'] else None,  # nan is none
        'part': made['part'] and str(made['part'])}

def usable(rows, name, split, folder):
    """Rows of a source -> rows of the schema as recipe `name` makes them; None, and a line, for a bad one."""
    for index, row in enumerate(rows):
        try:
            made = convert(RECIPES[name], row, folder)
            yield made | {'id': f'{name}-{split}-{index if made["id"] is None else made["id"]}'}
        except KeyError as error:
            raise SystemExit(f'no column {error} in {sorted(row)}; rename or edit recipes.toml') from error
        except (ValueError, FileNotFoundError) as error:
            print(f'skipped {name}-{split} row {index}: {error}')
            yield None

def warn_of_copies(*files):
    """Questions of a test file that stand in a train file: of 256 bits at most 12 differ (of pictures copied
    at 70 % size as JPEG: 19 of 20 do; of our samples no two others, from 19 on)."""
    ids, bits = [], []
    for table in (pandas.read_parquet(file, columns=['id', 'look']) for file in files):
        looks = numpy.frombuffer(bytes.fromhex(''.join(table['look'])), 'uint8').reshape(-1, 32)
        ids.append(table['id'])
        bits.append(numpy.unpackbits(looks, axis=1) * numpy.float32(2) - 1)  # [rows, 256], 1 or -1
    found = []  # rows of the test file and of the train file
    for start in range(0, len(ids[0]), 1000):
        alike = bits[0][start:start + 1000] @ bits[1].T  # 256 - 2 x bits that differ
        found += [(start + i, row.argmax()) for i, row in enumerate(alike) if row.max() >= 256 - 2 * 12]
    for test, train in found[:1]:
        print(f'WARNING: {len(found)} of {len(ids[0])} questions of {files[0]} stand in {files[1]}: '
              f'{ids[0][test]} is {ids[1][train]}')

def main(argv=None):
    parser = argparse.ArgumentParser(description='Write data/NAME/{train,test}.parquet')
    parser.add_argument('name', choices=RECIPES)
    parser.add_argument('--source', help='Hub id, folder, or parquet / json / jsonl file; default: the Hub')
    parser.add_argument('--limit', type=int, help='only the first N rows of each split; default: all')
    parser.add_argument('--out', type=Path, help='folder to write to; default: data/NAME')
    args = parser.parse_args(argv)
    recipe, folder = RECIPES[args.name], Path(args.source or '.').parent
    if 'columns' in recipe and not args.source:
        parser.error(f'{args.name} needs --source: parquet, json or jsonl with columns {recipe["columns"]}')
    out = args.out or Path(__file__).with_name(args.name)
    out.mkdir(parents=True, exist_ok=True)
    sets = arithmetic() if args.name == 'arithmetic' else load(recipe, args.source)
    for split in recipe.get('rows', ('train', 'test')):
        if not args.source and len(sets[split]) != recipe['rows'][split]:
            print(f'WARNING: {split} has {len(sets[split])} rows; {recipe["rows"][split]} were published')
        rows = (row | member for row in sets[split] for member in row.get(recipe.get('each')) or [{}])
        good = usable(tqdm(islice(rows, args.limit), desc=split), args.name, split, folder)
        file, kept, total = out / f'{split}.parquet', 0, 0
        with parquet.ParquetWriter(file.with_suffix('.tmp'), FEATURES.arrow_schema) as writer:
            while batch := list(islice(good, 100)):  # screenshots are large: never all at once
                table = Table.from_pylist([row for row in batch if row], FEATURES.arrow_schema)
                writer.write_table(table)
                kept, total = kept + len(table), total + len(batch)
        if not kept:
            raise SystemExit(f'{args.name} {split}: no usable row; see above')
        file.with_suffix('.tmp').replace(file)
        print(f'{file}: {kept} rows, {total - kept} skipped')
    for test, train in product(out.parent.glob('*/test.parquet'), out.parent.glob('*/train.parquet')):
        ours = all('look' in parquet.read_schema(file).names for file in (test, train))
        if ours and out in (test.parent, train.parent):
            warn_of_copies(test, train)

if __name__ == '__main__':
    main()
