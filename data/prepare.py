"""Public data sets -> data/NAME/{train,test}.parquet, in the one schema that train.py and eval.py read.

In:  a data set of the table RECIPES, from the Hub or --source: a Hub id, folder, parquet or json(l) file.
Out: id, problem (<image> where a picture goes), images, answer, choices, box (ratios; of the thing to find).
Run: python data/prepare.py geo3k                     # or gsm8k; arithmetic needs pip install reasoning-gym
     python data/prepare.py os_atlas --source=screens/linux_splited.json --limit=1000 --out=data/small
     python data/prepare.py file --source=mine.jsonl  # your rows: problem, answer, perhaps images and more
--limit=N keeps the first N rows of each split. Of a source without a test split the last tenth becomes it.
"""
import argparse
import re
from itertools import islice
from pathlib import Path

from datasets import Dataset, Features, Image, List, Value, load_dataset
from PIL import Image as Picture
from tqdm import tqdm

FEATURES = Features(id=Value('string'), problem=Value('string'), images=List(Image()), answer=Value('string'),
                    choices=List(Value('string')), box=List(Value('float64')))

def arithmetic():
    """2,200 different sums of two numbers of two digits; in every other one a number has one digit."""
    import reasoning_gym  # pip install reasoning-gym
    sums = {3: {}, 4: {}}  # digits in all -> {problem: answer}; dictionaries, as the generator repeats itself
    for row in reasoning_gym.create_dataset(
            'basic_arithmetic', size=30_000, seed=0, min_terms=2, max_terms=2, min_digits=2, max_digits=2,
            operators=['+'], allow_parentheses=False, allow_negation=False):
        a, b = row['metadata']['expression'].split(' + ')
        if len(a + b) in sums and not {'0', '100'} & {a, b}:
            sums[len(a + b)][f'What is {a} + {b}?'] = row['answer']
    rows = [{'problem': p, 'answer': a} for pair in zip(sums[3].items(), sums[4].items()) for p, a in pair]
    return {'train': rows[:2000], 'test': rows[2000:2200]}

def os_atlas(row):
    """A thing to find on a screenshot; its box is answered in thousandths, as grounding models write it."""
    text, (left, top, right, bottom) = row['instruction'], row['bbox'] or []
    if not (text and 0 <= left < right <= 1 and 0 <= top < bottom <= 1):
        raise ValueError(f'{text!r} at {row["bbox"]}: needs text, left < right and top < bottom in [0, 1]')
    return {'problem': f'<image>Where on this screen is "{text}"? Answer with its box in thousandths.',
            'images': [row.get('image') or row['img_filename']], 'box': row['bbox'],
            'answer': str([round(1000 * ratio) for ratio in row['bbox']])}

REPAIRS = (  # of answers: tags; a form feed for \f; lost °; cm^2^; Area $=9$; $9$; \boxed{9}, (C); C D
    ('</?answer>', ''), ('\f', r'\\f'), ('掳', '°'), (r'\^(\d)\^', r'^\1'), (r'^[\w ]+\$=', ''),
    (r'(?<!\\)\$', ''), (r'^\s*(?:\\boxed\{(.*)\}|\(([A-H])\))\s*$', r'\1\2'), ('^(.)\n(.)$', r'\1, \2'))

def about(picture, problem, answer, options=()):
    """A question about one picture: <image> in front, no <image1>, options (A), (B) ...; answer repaired."""
    for pattern, new in REPAIRS:
        answer = re.sub(pattern, new, answer or '')
    listed = [f'\n({letter}) {option}' for letter, option in zip('ABCDEFGH', options)]
    listed += ['\nAnswer with the letter of the right choice.'] * bool(listed)
    problem = re.sub(r' ?<image\d*>', '', problem + ''.join(listed))
    return {'problem': f'<image>{problem}', 'images': [picture], 'answer': answer, 'choices': options}

DAPO = r'^Please solve the following math problem: |\. The assistant first thinks about the reasoning .*$'
AIME = {'rows': {'test': 30}, 'row': lambda row: {'problem': row.get('problem') or row['Problem'],
        'answer': int(row['answer' if 'answer' in row else 'Answer'])}}  # '075' is 75
# source: Hub id, configuration; splits: of it, default all; seed: of a random cut; rows: as published
# columns: of --source; each: a list whose members are rows
RECIPES = {
    'geo3k': {'source': ['hiyouga/geometry3k'], 'rows': {'train': 2101, 'test': 601}, 'row': dict},
    'geoqa8k': {'source': ['leonardPKU/GEOQA_8K_R1V'], 'rows': {'train': 8031, 'test': 754}, 'row':
        lambda row: about(row['image'] if 'image' in row else row['images'][0], row['problem'],
                          row['solution' if 'solution' in row else 'answer'])},  # of GEOQA_R1V_Train_8K
    'math': {'source': ['hiyouga/math12k'], 'splits': {'train': 'train+test'}, 'seed': 0,  # MATH-500 is in it
             'rows': {'train': 11250, 'test': 1250}, 'row': dict},  # as many as in the paper; the cut is ours
    'gsm8k': {'source': ['openai/gsm8k', 'main'], 'rows': {'train': 7473, 'test': 1319}, 'row': lambda row: {
        'problem': row['question'], 'answer': row['answer'].rpartition('####')[2].replace(',', '')}},
    'dapo_math': {'columns': 'prompt, reward_model', 'row': lambda row: {  # as GRESO publishes it
        'problem': re.sub(DAPO, '', row['prompt'][-1]['content'], flags=re.DOTALL),
        'answer': row['reward_model']['ground_truth']}},
    'aime2023': AIME | {'source': ['AI-MO/aimo-validation-aime'], 'splits': {'test': 'train[30:60]'}},
    'aime2024': AIME | {'source': ['HuggingFaceH4/aime_2024']},
    'aime2025': AIME | {'source': ['math-ai/aime25']},
    'aime2026': AIME | {'source': ['math-ai/aime26']},
    'mathverse': {'source': ['AI4Math/MathVerse', 'testmini'], 'rows': {'test': 3940}, 'row':  # their
        lambda row: about(row['image'], row['query_cot'], row['answer'])},  # prompt: not all have a question
    'mathvision': {'source': ['MathLLMs/MathVision'], 'splits': {'test': 'test'}, 'rows': {'test': 3040},
        'row': lambda row: about(row['decoded_image'], row['question'], row['answer'], row['options'])},
    'arithmetic': {'generate': arithmetic, 'rows': {'train': 2000, 'test': 200}, 'row': dict},
    'os_atlas': {'columns': 'instruction, bbox, image or img_filename', 'each': 'elements', 'row': os_atlas},
    'file': {'columns': 'problem, answer', 'row': dict},
}

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
    if 'test' not in sets:
        sets = sets['train'].train_test_split(0.1, shuffle='seed' in recipe, seed=recipe.get('seed'))
        print(f'{path} has no test split: its {"random" if "seed" in recipe else "first"} 90 % are train')
    return sets

def encode(picture, folder):
    """A picture, {'bytes', 'path'} or path -> PNG in RGB, see-through parts white (black in the paper)."""
    picture = str(folder / picture) if isinstance(picture, str) else picture
    picture = Image().decode_example(Image().encode_example(picture)).convert('RGBA')
    page = Picture.new('RGBA', picture.size, 'white')
    return Image().encode_example(Picture.alpha_composite(page, picture).convert('RGB'))

def convert(row, folder):
    """Row of a recipe -> row of the schema, but for its id; a ValueError says why the row is not usable."""
    problem, images = (row['problem'] or '').strip(), row.get('images') or []
    answer = '' if row['answer'] is None else str(row['answer']).strip()
    if not problem or not answer or problem.count('<image>') != len(images):
        raise ValueError(f'problem {problem[:50]!r} with {len(images)} pictures, answer {answer!r}')
    return {'problem': problem, 'answer': answer, 'images': [encode(picture, folder) for picture in images],
            'choices': [str(choice) for choice in row.get('choices') or []], 'box': row.get('box') or []}

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
    sets = recipe['generate']() if 'generate' in recipe else load(recipe, args.source)
    for split in recipe.get('rows', ('train', 'test')):
        if not args.source and len(sets[split]) != recipe['rows'][split]:
            print(f'WARNING: {split} has {len(sets[split])} rows; {recipe["rows"][split]} were published')
        rows = (row | member for row in sets[split] for member in row.get(recipe.get('each'), [{}]))
        good = []
        for index, row in enumerate(tqdm(islice(rows, args.limit), desc=split)):
            try:
                good.append({'id': f'{args.name}-{split}-{index}'} | convert(recipe['row'](row), folder))
            except KeyError as error:
                raise SystemExit(f'no column {error} in {sorted(row)}; rename or edit RECIPES') from error
            except (ValueError, FileNotFoundError) as error:
                print(f'skipped {args.name}-{split} row {index}: {error}')
        if not good:
            raise SystemExit(f'{args.name} {split}: no usable row; see above')
        Dataset.from_list(good, features=FEATURES).to_parquet(out / f'{split}.parquet')
        print(f'{out / split}.parquet: {len(good)} rows, {index + 1 - len(good)} skipped')

if __name__ == '__main__':
    main()
