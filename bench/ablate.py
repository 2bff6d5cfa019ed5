"""The paper's tables, small: each row over several seeds, mean and 95 % interval, beside the paper's numbers.
    python bench/ablate.py table1 table7 --seeds=5 --jobs=2     rows stand in ablate.toml; no name: all tables
Ended runs are not repeated, interrupted ones go on. Seconds are those of training steps alone."""
import argparse
import json
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas

BOOK = tomllib.loads(Path(__file__).with_suffix('.toml').read_text('utf-8'))

def run(job):
    """train.py, then eval.py on known and unseen pictures, unless that is done -> numbers."""
    out, setting, words = job
    name = '_'.join(word.removeprefix('config/').removeprefix('--').removesuffix('.py') for word in words)
    folder = Path(out, setting, name).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    train, test = BOOK['settings'][setting].values()
    for command in (['train.py', *train, *words, '--auto_resume', f'--out_dir={folder}'],
                    ['eval.py', *test, f'--init_from={folder}/latest', f'--output={folder}']):
        if not [*folder.glob('eval_*.json')]:
            with (folder / 'console.txt').open('a') as console:  # says why where it fails
                subprocess.run([sys.executable, *command], stdout=console, stderr=console, check=True)
    log = pandas.read_json(folder / 'log.jsonl', lines=True)
    sets = json.loads(next(folder.glob('eval_*.json')).read_text())['scores'].values()
    scores = {f'{name} {key}': x for name, one in zip(('known', 'unseen'), sets) for key, x in one.items()}
    return scores | log.filter(regex='^time/|^memory/').mean().to_dict() | {
        'greedy': log['eval/accuracy'].dropna().iloc[-1], 'seconds': log['time/step'].sum(),
        'trained': log['trajectories_trained'].mean(), 'last G': log['rollouts_per_question'].iloc[-1]}

if __name__ == '__main__':
    parser = argparse.ArgumentParser(description='Runs and prints tables of ablate.toml')
    parser.add_argument('tables', nargs='*', help=f'some of {[*BOOK["tables"]]}; none: all')
    for name, (default, what) in BOOK['options'].items():
        parser.add_argument(f'--{name}', type=type(default), default=default, help=what)
    args = parser.parse_args()
    steps = [f'--max_steps={args.steps}'] * bool(args.steps)
    jobs = {(name, row, seed):
            (args.out, BOOK['tables'][name]['setting'], (*words.split(), *steps, f'--seed={seed}'))
            for seed in range(1, args.seeds + 1) for name in args.tables or BOOK['tables']
            for row, (words, _) in BOOK['tables'][name]['rows'].items()}
    once = list(dict.fromkeys(jobs.values()))  # rows that stand in two tables
    with ThreadPoolExecutor(args.jobs) as pool:  # one of each setting alone, as it may have to make the toy
        found = {job: run(job) for job in {job[1]: job for job in once}.values()}
        found |= zip(once, pool.map(run, once))
    runs = pandas.DataFrame({'table': name, 'row': row} | found[job] for (name, row, _), job in jobs.items())
    for name, rows in runs.groupby('table', sort=False):
        table, groups = BOOK['tables'][name], rows.drop(columns='table').groupby('row', sort=False)
        means, halves = groups.mean(), groups.sem() * BOOK['student'][min(args.seeds, 10)]
        shown = means.map('{:.3f}'.format) + halves.map(' ± {:.3f}'.format).replace(' ± nan', '')
        bases = [x.partition(' + ')[0] if ' + ' in means.index[-1] else means.index[0] for x in means.index]
        shown['speed'] = (means['seconds'][bases].to_numpy() / means['seconds']).round(2)
        shown['paper'] = [paper for _, paper in table['rows'].values()]
        print(f'\n{name}: {table["title"]}; {args.seeds} seeds\n{shown[table["columns"]].to_string()}')
