"""Curves of runs, from their log.jsonl; the seeds of a method are one curve with a band, its 95 % interval.
    python bench/plot.py out/ablate/toy/* --to=assets/curves.png --x=minutes --y=eval/accuracy,loss/entropy
With a setting as x (--x=tau), the last step of each run is a point of one curve."""
import sys
from pathlib import Path

import pandas
import seaborn

runs = [Path(word) for word in sys.argv[1:] if not word.startswith('--')]
options = dict(word[2:].split('=', 1) for word in sys.argv[1:] if word.startswith('--'))
x, keys = options.get('x', 'step'), options.get('y', 'eval/accuracy,trajectories_trained').split(',')
logs = [pandas.read_json(run / 'log.jsonl', lines=True).assign(run=run.name) for run in runs]
table = pandas.concat([log[1:] for log in logs], ignore_index=True).fillna({'time/step': 0})
table['method'] = table['run'].str.partition('_seed=')[0]
seconds = table.groupby(['method', 'step'])['time/step'].transform('mean')  # all seeds at the same minute
table['minutes'] = seconds.groupby(table['run']).cumsum() / 60
if x in logs[0]['config'][0]:
    table = pandas.concat([log[-1:].assign(method='last step', **{x: log['config'][0][x]}) for log in logs])
table = table.melt([x, 'method', 'run'], keys).dropna()
grid = seaborn.relplot(table, x=x, y='value', hue='method', col='variable', col_wrap=min(3, len(keys)),
                       kind='line', height=3.4, aspect=1.2, facet_kws={'sharey': False})
seaborn.move_legend(grid, 'upper center', bbox_to_anchor=(0.45, 0), ncol=3)
grid.set_titles('{col_name}').set_ylabels('').savefig(options['to'], dpi=130)
