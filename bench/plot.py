"""Curves of runs, from their log.jsonl: python bench/plot.py out/toy_1 out/toy_2 --to=assets/toy.png

Left: accuracy on test questions, pale on training rollouts (mean of 5 steps); right: trajectories a step."""
import argparse
import json
from pathlib import Path

import matplotlib.pyplot as plt

parser = argparse.ArgumentParser()
parser.add_argument('runs', nargs='+', type=Path)
parser.add_argument('--to', default='assets/curves.png')
args = parser.parse_args()
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout='constrained')
for number, run in enumerate(args.runs):
    records = [json.loads(line) for line in (run / 'log.jsonl').open()]
    for axes, key, style, label in (
            (left, 'reward/accuracy', '-', ''), (left, 'eval/accuracy', 'o-', 'test, greedy'),
            (left, 'eval/sampled', 's--', 'test, temperature 1'),
            (right, 'trajectories_sampled', '-', 'sampled'),
            (right, 'trajectories_trained', ':', 'trained on')):
        x, y = [[record[name] for record in records if key in record] for name in ('step', key)]
        window, alpha = (1, 1) if label else (5, 0.35)
        y = [sum(y[max(0, i - window):i]) / min(i, window) for i in range(1, len(y) + 1)]
        label = f'{run.name}: {label}' if label and y else None
        axes.plot(x, y, style, color=f'C{number}', alpha=alpha, label=label)
for axes, top, title in (left, 1, 'accuracy (pale: training rollouts)'), (right, None, 'trajectories a step'):
    axes.set(xlabel='step', ylim=(0, top), title=title)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7)
figure.savefig(args.to, dpi=130)
