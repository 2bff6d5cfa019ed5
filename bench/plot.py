"""Curves of one or more runs, from their log.jsonl.

    python bench/plot.py out/toy_1 out/toy_2 out/toy_3 --to=assets/toy.png

Left: accuracy on the test questions, and of the training rollouts (pale, a mean of 5 steps); right: trajectories
a step, sampled and trained on. Each run has one colour.
"""
import argparse
import json
from pathlib import Path

import matplotlib

matplotlib.use('Agg')
import matplotlib.pyplot as plt  # noqa: E402

SMOOTH = 5  # steps


def read(folder):
    """log.jsonl -> (records of steps, records with an evaluation)."""
    records = [json.loads(line) for line in Path(folder, 'log.jsonl').read_text().splitlines()]
    return [r for r in records if r.get('step')], [r for r in records if 'eval/accuracy' in r]


def running_mean(values):
    return [sum(values[max(0, i - SMOOTH + 1):i + 1]) / len(values[max(0, i - SMOOTH + 1):i + 1])
            for i in range(len(values))]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('runs', nargs='+', help='folders that hold a log.jsonl')
    parser.add_argument('--to', default='assets/curves.png')
    args = parser.parse_args()
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout='constrained')
    for i, run in enumerate(args.runs):
        steps, tests = read(run)
        colour, label, x = f'C{i}', Path(run).name, [r['step'] for r in steps]
        at = [r['step'] for r in tests]
        left.plot(x, running_mean([r['reward/accuracy'] for r in steps]), color=colour, alpha=0.35)
        left.plot(at, [r['eval/accuracy'] for r in tests], 'o-', color=colour, label=f'{label}: test, greedy')
        if 'eval/sampled' in tests[0]:
            sampled = [r['eval/sampled'] for r in tests]
            left.plot(at, sampled, 's--', color=colour, label=f'{label}: test, temperature 1')
        right.plot(x, [r['trajectories_sampled'] for r in steps], color=colour, label=f'{label}: sampled')
        right.plot(x, [r['trajectories_trained'] for r in steps], ':', color=colour, label=f'{label}: trained')
    left.set(xlabel='step', ylabel='accuracy', ylim=(0, 1), title='accuracy (pale: training rollouts)')
    right.set(xlabel='step', ylabel='trajectories', title='trajectories a step')
    right.set_ylim(bottom=0)
    for axes in left, right:
        axes.grid(alpha=0.3)
        axes.legend(fontsize=7)
    Path(args.to).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(args.to, dpi=130)
    print(f'{args.to}: {len(args.runs)} runs')


if __name__ == '__main__':
    main()
