"""Public data sets -> data/NAME/{train,test}.parquet, in the one schema that train.py and eval.py read.
In:  a data set of recipes.toml, from the Hub or --source: a Hub id, folder, parquet or json(l) file.
Out: id, problem (<image> for a picture), images, answer, choices, box (ratios; of what to find), part (of
     the set, reported by itself), decimals (that count), look (of picture or text, to find copies by).
Run: python data/prepare.py geo3k, or: python data/prepare.py file --source=mine.jsonl   (rows of your own)
Without a test split the last tenth becomes it. Test questions in a neighbour's training set are told."""
import argparse
import hashlib
import re
import tomllib
from itertools import islice, product
from pathlib import Path

import numpy
from datasets import Features, Image, List, Value, concatenate_datasets, load_dataset
from datasets.arrow_writer import ParquetWriter
from PIL import Image as Picture
from pyarrow.parquet import read_schema, read_table
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
        train = sets['train'].shuffle(recipe['seed']) if 'seed' in recipe else sets['train']
        test = sets.get('test', train.take(0))
        cut = 9 * (len(train) + len(test)) // 10
        print(f'{path}: its {"random" if "seed" in recipe else "first"} 90 % are train')
        sets = {'train': train.take(cut), 'test': concatenate_datasets([test, train.skip(cut)])}
    return sets

def flatten(picture, folder):
    """A picture, {'bytes', 'path'} or path -> RGB picture, see-through parts white (black in the paper)."""
    if not isinstance(picture, Picture.Image):
        picture = Image().encode_example(str(folder / picture) if isinstance(picture, str) else picture)
        picture = Image().decode_example(picture)
    if picture.mode[0] == 'I' and picture.getextrema()[1] > 255:  # 16 bits a point
        picture = picture.point(lambda value: value / 256)
    page = Picture.new('RGBA', picture.size, 'white')
    return Picture.alpha_composite(page, picture.convert('RGBA')).convert('RGB')

def field(recipe, row, key):
    """What a recipe takes from a row for `key`, as recipes.toml explains; None where neither knows it."""
    form = recipe.get(key, key)
    if isinstance(form, list):  # the first column with something in it
        form = next((name for name in form if row.get(name) not in (None, '')), form[-1])
    if not isinstance(form, str) or '{' in form:  # a number, or text with {column}s
        return form.format_map(row) if isinstance(form, str) else form
    return row[form] if key in recipe or key in ('problem', 'answer') else row.get(key)

def convert(recipe, row, folder):
    """Row of a source -> row of the schema; a ValueError says why it is not usable."""
    made = {key: field(recipe, row, key) for key in FEATURES}
    _, problem, images, answer, choices, box, _, decimals, _ = made.values()
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
        decimals = 0
    if choices and 'text_answers' in recipe:
        answer = 'ABCDEFGH'[choices.index(answer)]
    if 'boxes' in recipe:  # to be answered in thousandths, as grounding models write them
        left, top, right, bottom = box or []
        if not (answer and 0 <= left < right <= 1 and 0 <= top < bottom <= 1):
            raise ValueError(f'{answer!r} at {box}: needs text, left < right and top < bottom in [0, 1]')
        answer = [round(1000 * ratio) for ratio in box]
    answer = '' if answer is None else str(answer)
    for pattern, new in RECIPES[recipe['repair']]['repairs'] if 'repair' in recipe else []:
        answer = re.sub(pattern, new, answer, flags=re.DOTALL)
    problem, answer = problem.strip(), answer.strip()
    if not problem or not answer or problem.count('<image>') != len(images):
        raise ValueError(f'problem {problem[:50]!r} with {len(images)} pictures, answer {answer!r}')
    images, words = [flatten(picture, folder) for picture in images], re.findall(r'\w+|\S', problem.lower())
    look = hashlib.sha256(' '.join(words).encode()).hexdigest()  # 256 bits of the text, or
    if images:  # of 16 x 16 points of the first picture, dark or light
        grey = numpy.asarray(images[0].convert('L').resize((16, 16), Picture.Resampling.BOX))
        look = numpy.packbits(grey < grey.mean()).tobytes().hex()
    return dict(made, problem=problem, answer=answer, images=images, look=look, box=box or [],
                choices=[str(choice).strip() for choice in choices or []],
                decimals=decimals if decimals == decimals else None)  # nan is none

def write(rows, name, split, folder, file):
    """Rows of a source -> `file`, as recipe `name` makes them; says why a row is not usable."""
    aside = file.with_suffix('.tmp')
    with ParquetWriter(features=FEATURES, path=str(aside)) as writer:  # holds 100 rows: screenshots are large
        for index, row in enumerate(tqdm(rows, desc=split)):
            try:
                made = convert(RECIPES[name], row, folder)
            except KeyError as key:
                raise SystemExit(f'no column {key} in {sorted(row)}; rename or edit recipes.toml') from key
            except (ValueError, FileNotFoundError) as error:
                print(f'skipped {name}-{split} row {index}: {error}')
            else:
                made['id'] = f'{name}-{split}-{index if made["id"] is None else made["id"]}'
                writer.write(FEATURES.encode_example(made))
        kept, _ = writer.finalize()
    if not kept:
        raise SystemExit(f'{name} {split}: no usable row; see above')
    aside.replace(file)
    print(f'{file}: {kept} rows, {index + 1 - kept} skipped')

def warn_of_copies(*files):
    """Questions of a test file that stand in a train file: of the 256 bits of `look` at most 12 differ."""
    tables = [read_table(file, columns=['id', 'look']) for file in files]
    test, train = (numpy.array([bytearray.fromhex(look) for look in t['look'].to_pylist()]) for t in tables)
    found = []
    for row, look in enumerate(test):
        apart = numpy.bitwise_count(look ^ train).sum(axis=1)  # bits that differ: 19 up in our other samples
        if apart.min() <= 12:  # as in 19 of 20 pictures copied at 70 % size as JPEG
            found += [f'{tables[0]["id"][row]} is {tables[1]["id"][apart.argmin()]}']
    if found:
        print(f'WARNING: {len(found)} of {len(test)} questions of {files[0]} stand in {files[1]}: {found[0]}')

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
        write(islice(rows, args.limit), args.name, split, folder, out / f'{split}.parquet')
    for pair in product(out.parent.glob('*/test.parquet'), out.parent.glob('*/train.parquet')):
        if all('look' in read_schema(file).names for file in pair) and out in [file.parent for file in pair]:
            warn_of_copies(*pair)

if __name__ == '__main__':
    main()
