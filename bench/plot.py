"""Curves of runs, from their log.jsonl: python bench/plot.py out/toy_1 out/toy_2 --to=assets/toy.png

Left: accuracy on test questions, pale on training rollouts (mean of 5 steps); right: trajectories a step."""
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import pandas

*runs, to = sys.argv[1:]
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout='constrained')
for number, run in enumerate(map(Path, runs)):
    log = pandas.read_json(run / 'log.jsonl', lines=True).set_index('step')
    smooth = log['reward/accuracy'].dropna().rolling(5, min_periods=1).mean()
    left.plot(smooth, color=f'C{number}', alpha=0.35)
    for axes, key, style, label in ((left, 'eval/accuracy', 'o-', 'test, greedy'),
                                    (left, 'eval/sampled', 's--', 'test, temperature 1'),
                                    (right, 'trajectories_sampled', '-', 'sampled'),
                                    (right, 'trajectories_trained', ':', 'trained on')):
        if key in log:
            axes.plot(log[key].dropna(), style, color=f'C{number}', label=f'{run.name}: {label}')
for axes, top, title in (left, 1, 'accuracy (pale: training rollouts)'), (right, None, 'trajectories a step'):
    axes.set(xlabel='step', ylim=(0, top), title=title)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7)
figure.savefig(to.removeprefix('--to='), dpi=130)
