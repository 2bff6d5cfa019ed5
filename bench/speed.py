"""How fast, against what people use: one process, the same model, questions and updates (see speed.toml).
    python bench/speed.py toy memory --max_steps=3     no word: SmolLM2 on sums, memory; flags are train.py's
TRL's GRPOTrainer joins in where it is installed (pip install trl), and takes most of the time."""
import runpy
import subprocess
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

def generate(names):
    """Seconds in which the library's own generate() samples as many answers to the last step's questions."""
    batch, start = names['models'].collate([*names['prompts'].values()], names['device']), time.perf_counter()
    names['model'].generate(**batch, do_sample=True, top_k=0, max_new_tokens=names['max_response_tokens'],
                            num_return_sequences=names['rollouts_per_question'])
    return time.perf_counter() - start

def trl(names, out):
    """Seconds of a step of TRL's GRPOTrainer, 8 answers to each of the last step's questions."""
    from trl import GRPOConfig, GRPOTrainer
    prompts, updates, processor = names['prompts'].values(), names['updates_per_step'], names['processor']
    config = GRPOConfig(
        out, per_device_train_batch_size=8 * len(prompts) // updates, steps_per_generation=updates,
        max_steps=updates, max_completion_length=names['max_response_tokens'], **TABLE['trl'])
    rows = Dataset.from_list([{'prompt': processor.decode(prompt['input_ids'])} for prompt in prompts])
    trainer = GRPOTrainer(names['model'], lambda completions, **_: [coin(text, None) for text in completions],
                          config, train_dataset=rows, processing_class=processor)
    start = time.perf_counter()
    trainer.train()
    return time.perf_counter() - start

if __name__ == '__main__':
    table, words = {}, sys.argv[1:] or TABLE['default']
    for setting in [word for word in words if word in TABLE['settings']] or TABLE['with_trl']:
        flags = TABLE['settings'][setting] + TABLE['common'] + [w for w in words if w.startswith('--')]
        with tempfile.TemporaryDirectory() as out:
            for method, more in TABLE['methods'].items():
                names, table[setting, method] = train(flags + more, out)
            table[setting, "the library's"] = pandas.Series({'time/generate': generate(names)})
            if find_spec('trl') and setting in TABLE['with_trl']:
                table[setting, 'TRL'] = pandas.Series({'time/step': trl(names, out)})
    table = pandas.DataFrame(table).T[TABLE['columns']]
    table['passes'] = table['time/old'] + table['time/update']
    for key, own in TABLE['ratios']:
        table[f'{key} / that of {own}'] = table[key].div(table[key].xs(own, level=1), level=0)
    print(table.round(2).T.to_string(na_rep=''))
    if 'memory' in words:  # of log-probs: a test measures it, in processes of their own
        subprocess.run([sys.executable, '-m', 'pytest', *TABLE['memory']], cwd=sys.path[0], check=True)
