"""Curves of one or more runs: python bench/plot.py out/toy_1 out/toy_2 --to=assets/toy.png

From their log.jsonl. Left: accuracy on test questions and of training rollouts (pale, a mean of 5 steps);
right: trajectories a step. Each run has one colour.
"""
import argparse
import json
from pathlib import Path

import matplotlib

matplotlib.use('Agg')
import matplotlib.pyplot as plt  # noqa: E402

parser = argparse.ArgumentParser()
parser.add_argument('runs', nargs='+')
parser.add_argument('--to', default='assets/curves.png')
args = parser.parse_args()
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout='constrained')
for colour, run in zip(plt.rcParams['axes.prop_cycle'].by_key()['color'], args.runs):
    records, name = [json.loads(line) for line in Path(run, 'log.jsonl').open()], Path(run).name

    def draw(axes, key, style, label, records=records, colour=colour, name=name, window=1, **look):
        x, y = [[r[k] for r in records if key in r] for k in ('step', key)]
        y = [sum(y[max(0, i - window):i]) / min(i, window) for i in range(1, len(y) + 1)]
        axes.plot(x, y, style, color=colour, label=f'{name}: {label}' if label and y else None, **look)

    draw(left, 'reward/accuracy', '-', None, window=5, alpha=0.35)
    draw(left, 'eval/accuracy', 'o-', 'test, greedy')
    draw(left, 'eval/sampled', 's--', 'test, temperature 1')
    draw(right, 'trajectories_sampled', '-', 'sampled')
    draw(right, 'trajectories_trained', ':', 'trained on')
left.set(xlabel='step', ylim=(0, 1), title='accuracy (pale: training rollouts)')
right.set(xlabel='step', ylim=(0, None), title='trajectories a step')
for axes in left, right:
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7)
figure.savefig(args.to, dpi=130)
