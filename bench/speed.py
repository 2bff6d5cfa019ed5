"""How fast, against what people use: one process, the same model, questions and updates (see speed.toml).

    python bench/speed.py long short --max_steps=3 --cpu_threads=2   SmolLM2 on sums; flags are train.py's
TRL's GRPOTrainer joins in where it is installed (pip install trl), and takes most of the time."""
import runpy
import sys
import tempfile
import time
import tomllib
import zlib
from importlib.util import find_spec
from pathlib import Path

import pandas
from datasets import Dataset

sys.path.insert(0, str(Path(__file__).parents[1]))
TABLE = tomllib.loads(Path(__file__).with_suffix('.toml').read_text())

def coin(response, question):
    return zlib.crc32(response.encode()) % 2

def train(flags, out):
    """Run train.py in this process -> its variables, means of its log without the first step."""
    sys.argv = ['train.py', f'--reward={__file__}:coin', *flags, f'--out_dir={out}']
    names = runpy.run_path(sys.path[0] + '/train.py', run_name='__main__')
    return names, pandas.read_json(Path(out, 'log.jsonl'), lines=True)[3:].mean(numeric_only=True)

def trl(model, processor, prompts, T, updates, out):
    """A step of TRL's GRPOTrainer, 8 answers to each prompt -> seconds, and those of them in generate()."""
    from trl import GRPOConfig, GRPOTrainer
    rows = [{'prompt': processor.decode(prompt['input_ids'])} for prompt in prompts]
    trainer = GRPOTrainer(
        model, lambda completions, **_: [float(coin(text, None)) for text in completions],
        GRPOConfig(out, per_device_train_batch_size=8 * len(prompts) // updates, steps_per_generation=updates,
                   max_steps=updates, max_completion_length=T, **TABLE['trl']),
        train_dataset=Dataset.from_list(rows), processing_class=processor)
    generate, sampling, start = model.generate, [], time.perf_counter()

    def timed(*args, **kwargs):
        sampling.append(-time.perf_counter())
        found = generate(*args, **kwargs)
        sampling.append(time.perf_counter())
        return found
    model.generate = timed
    trainer.train()
    return time.perf_counter() - start, sum(sampling)

if __name__ == '__main__':
    table, words = {}, sys.argv[1:]
    for setting in [word for word in words if word in TABLE['settings']] or TABLE['with_trl']:
        flags = TABLE['settings'][setting] + TABLE['common'] + [w for w in words if w.startswith('--')]
        with tempfile.TemporaryDirectory() as out:
            for method, more in TABLE['methods'].items():
                names, table[setting, method] = train(flags + more, out)
            if find_spec('trl') and setting in TABLE['with_trl']:
                seconds = trl(names['model'], names['processor'], [*names['prompts'].values()],
                              names['max_response_tokens'], names['updates_per_step'], out)
                table[setting, 'TRL'] = pandas.Series(dict(zip(('time/step', 'time/generate'), seconds)))
    table = pandas.DataFrame(table).T[TABLE['columns']]
    table['passes'] = table['time/old'] + table['time/update']
    for key, own in TABLE['ratios']:
        table[f'{key} / that of {own}'] = table[key].div(table[key].xs(own, level=1), level=0)
    print(table.round(2).T.to_string(na_rep=''))
