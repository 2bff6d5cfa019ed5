"""Public data sets -> data/NAME/{train,test}.parquet, in the one schema that train.py and eval.py read.

In:  a data set of the table RECIPES, from the Hub or --source: a Hub id, folder, parquet or json(l) file.
Out: id str, problem str (<image> where a picture goes), images list, answer str, choices list of str.
Run: python data/prepare.py geo3k
     python data/prepare.py gsm8k --source=downloads/gsm8k_train.parquet --limit=100 --out=data/small
     python data/prepare.py arithmetic                # generated; needs pip install reasoning-gym
     python data/prepare.py file --source=mine.jsonl  # your rows: problem, answer, perhaps images, choices
--limit=N keeps the first N rows of each split. Of a source without a test split the last tenth becomes it.
See-through pictures are put on white; the paper's code drops alpha, which turns some of them black.
"""
import argparse
from itertools import islice
from pathlib import Path

from datasets import Dataset, Features, Image, List, Value, load_dataset
from PIL import Image as Picture
from tqdm import tqdm

FEATURES = Features({'id': Value('string'), 'problem': Value('string'), 'images': List(Image()),
                     'answer': Value('string'), 'choices': List(Value('string'))})


def arithmetic():
    """2,200 different sums of two numbers of two digits; in every other one a number has one digit."""
    try:
        import reasoning_gym
    except ImportError as error:
        raise SystemExit('arithmetic is made by reasoning-gym: run `pip install reasoning-gym`') from error
    sums = {3: {}, 4: {}}  # digits in all -> {problem: row}; dictionaries, as the generator repeats itself
    for row in reasoning_gym.create_dataset(
            'basic_arithmetic', size=30_000, seed=0, min_terms=2, max_terms=2, min_digits=2, max_digits=2,
            operators=['+'], allow_parentheses=False, allow_negation=False):
        a, b = row['metadata']['expression'].split(' + ')
        if len(a + b) in sums and not {'0', '100'} & {a, b}:
            problem = f'What is {a} + {b}?'
            sums[len(a + b)][problem] = {'problem': problem, 'answer': row['answer']}
    rows = [row for pair in zip(*(kind.values() for kind in sums.values())) for row in pair]
    return {'train': rows[:2000], 'test': rows[2000:2200]}


# source: Hub id, configuration. row: source row -> dict with problem, answer, perhaps images and choices.
# rows: the published counts. The last line of a GSM8K solution is "#### 1,234".
RECIPES = {
    'geo3k': {'source': ['hiyouga/geometry3k'], 'rows': {'train': 2101, 'test': 601}, 'row': dict},
    'gsm8k': {'source': ['openai/gsm8k', 'main'], 'rows': {'train': 7473, 'test': 1319},
              'row': lambda row: {'problem': row['question'],
                                  'answer': row['answer'].rpartition('####')[2].replace(',', '')}},
    'arithmetic': {'generate': arithmetic, 'rows': {'train': 2000, 'test': 200}, 'row': dict},
    'file': {'row': dict},
}


def load(source):
    """[path or Hub id, configuration] -> {'train': rows, 'test': rows}."""
    kind = 'parquet' if source[0].endswith('.parquet') else 'json'
    try:
        is_file = Path(source[0]).is_file()
        sets = load_dataset(kind, data_files=source[0]) if is_file else load_dataset(*source)
    except (ConnectionError, FileNotFoundError) as error:
        raise SystemExit(f'cannot read {source[0]!r}: {error}\nTo use a copy, pass --source=FILE') from error
    if 'test' not in sets:
        sets = sets['train'].train_test_split(test_size=0.1, shuffle=False)
        print(f'{source[0]} has no test split: its first 90 % are train, its last 10 % test')
    return sets


def encode(picture, folder):
    """A picture, {'bytes', 'path'} or path -> PNG in RGB, see-through parts white."""
    picture = str(folder / picture) if isinstance(picture, str) else picture
    picture = Image().decode_example(Image().encode_example(picture)).convert('RGBA')
    page = Picture.new('RGBA', picture.size, 'white')
    return Image().encode_example(Picture.alpha_composite(page, picture).convert('RGB'))


def convert(row, folder):
    """Row of a recipe -> row of the schema, but for its id; a ValueError says why the row is not usable."""
    problem, images = (row['problem'] or '').strip(), row.get('images') or []
    answer = '' if row['answer'] is None else str(row['answer']).strip()
    if problem.count('<image>') != len(images):
        raise ValueError(f'{problem.count("<image>")} x <image>, {len(images)} pictures')
    if not problem or not answer:
        raise ValueError('empty problem or answer')
    return {'problem': problem, 'answer': answer, 'images': [encode(picture, folder) for picture in images],
            'choices': [str(choice) for choice in row.get('choices') or []]}


def main(argv=None):
    parser = argparse.ArgumentParser(description='Write data/NAME/{train,test}.parquet')
    parser.add_argument('name', choices=RECIPES)
    parser.add_argument('--source', help='Hub id, folder, or parquet / json / jsonl file; default: the Hub')
    parser.add_argument('--limit', type=int, help='only the first N rows of each split; default: all')
    parser.add_argument('--out', type=Path, help='folder to write to; default: data/NAME')
    args = parser.parse_args(argv)
    if args.name == 'file' and not args.source:
        parser.error('file needs --source: a parquet, json or jsonl file with columns problem and answer')
    recipe, folder = RECIPES[args.name], Path(args.source or '.').parent
    out = args.out or Path(__file__).with_name(args.name)
    out.mkdir(parents=True, exist_ok=True)
    source = [args.source] if args.source else recipe.get('source')
    sets = recipe['generate']() if 'generate' in recipe else load(source)
    for split in ('train', 'test'):
        rows, good, skipped = sets[split], [], 0
        published = recipe.get('rows', {}).get(split)
        if not args.source and len(rows) != published:
            print(f'WARNING: {args.name} {split}: {len(rows)} rows; {published} were published')
        for index, row in enumerate(tqdm(islice(rows, args.limit), desc=split)):
            try:
                good.append({'id': f'{args.name}-{split}-{index}'} | convert(recipe['row'](row), folder))
            except KeyError as error:
                raise SystemExit(f'{split}: no column {error} among {sorted(row)}: rename yours, or add a '
                                 'recipe to RECIPES in data/prepare.py') from error
            except ValueError as error:
                print(f'skipped {args.name}-{split} row {index}: {error}')
                skipped += 1
        if not good:
            raise SystemExit(f'{args.name} {split}: no usable row; see above, and the columns of {source}')
        Dataset.from_list(good, features=FEATURES).to_parquet(out / f'{split}.parquet')
        print(f'{out / split}.parquet: {len(good)} rows, {skipped} skipped')


if __name__ == '__main__':
    main()
