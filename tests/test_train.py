"""train.py and eval.py from the outside: runs of a few steps on a hardly trained toy, on one process and on two.

Starting Python, torch and transformers costs more than such a run. So only some runs here are the README's commands as
a user types them (helpers.run_train); the others are forks of one process that has done the imports (`launch`), which
also lets a test put a line of code before a run, to count or to replace something inside.
"""
import itertools
import json
import math
import os
import random
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from safetensors.torch import load_file
from transformers import AutoModelForImageTextToText

import eval as evaluation
import mdap
from data import toy
from helpers import ROOT, read_log, run_train
from model import MasterAdamW
from reward import extract_boxed

FORKS = r'''
import json, os, runpy, sys, traceback
sys.path.insert(0, sys.argv[1])
import datasets, torch, transformers
import ars, eval, losses, mdap, model, reward, rollout
for line in sys.stdin:
    order = json.loads(line)
    children = []
    for rank in range(order['processes']):
        child = os.fork()
        if child == 0:
            file = os.open(order['output'] + str(rank), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(file, 1), os.dup2(file, 2), os.close(0)
            if order['processes'] > 1:
                os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(order['processes']),
                                  MASTER_ADDR='127.0.0.1', MASTER_PORT=str(order['port']))
            code = 0
            try:
                exec(order['before'], {'RANK': rank})
                sys.argv = [order['script'], *order['flags']]
                runpy.run_path(sys.argv[0], run_name='__main__')
            except SystemExit as error:
                code = error.code
                if isinstance(code, str):
                    print(code, file=sys.stderr)
                    code = 1
            except BaseException:
                traceback.print_exc()
                code = 1
            sys.stdout.flush(), sys.stderr.flush()
            os._exit(code or 0)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    print(json.dumps(codes), flush=True)
'''
# before= of launch: one line per pass of trajectories through a policy, one per optimizer step
COUNT_ROWS = '''
import json, model, torch
forward = model.Policy.forward
def counted(self, prompts, owner, ids, mask):
    frozen = not next(self.parameters()).requires_grad
    kind = 'update' if torch.is_grad_enabled() else 'ref' if frozen else 'old'
    with open(FILE + str(RANK), 'a') as file:
        file.write(json.dumps([kind, len(owner), int(mask.sum()), len(prompts)]) + '\\n')
    return forward(self, prompts, owner, ids, mask)
model.Policy.forward = counted
step = model.MasterAdamW.step
def counted_step(self, *args, **kwargs):
    with open(FILE + str(RANK), 'a') as file:
        file.write(json.dumps(['step', 0, 0, 0]) + '\\n')
    return step(self, *args, **kwargs)
model.MasterAdamW.step = counted_step
'''
LOGGED = set('''step epoch rollouts_per_question trajectories_sampled trajectories_trained tokens_sampled tokens_trained
    reward/mean reward/accuracy reward/format prune/kept_mean prune/kept_max prune/flat_groups rollout/length
    rollout/truncated loss/policy loss/kl loss/clip_fraction loss/entropy loss/grad_norm lr time/step time/generate
    time/reward time/prune time/old time/ref time/update memory/peak_gb'''.split())


@pytest.fixture(scope='module')
def level(tmp_path_factory):
    """The folder of a hardly trained toy: its answers have the right format now and then, so that rewards differ."""
    folder = tmp_path_factory.mktemp('made')
    toy.prepare(folder, 1, 0, effort=0.1)
    return folder / 'level1'


@pytest.fixture(scope='module')
def forks(tmp_path_factory):
    """A process with all imports done; it forks once per rank for each line it reads."""
    process = subprocess.Popen(
        [sys.executable, '-c', FORKS, str(ROOT)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
        env=os.environ | {'OMP_NUM_THREADS': '1', 'HF_HUB_OFFLINE': '1'})
    yield process, tmp_path_factory.mktemp('outputs')
    process.stdin.close()
    process.wait(30)


@pytest.fixture(scope='module')
def launch(forks):
    """launch(*flags, script=, processes=, before=) -> what rank 0 (ok=False: any rank) printed; checks exit codes."""
    process, outputs = forks
    count = itertools.count()

    def launch(*flags, script='train.py', processes=1, before='', ok=True):
        output = outputs / f'{next(count)}.'
        with socket.socket() as free:
            free.bind(('127.0.0.1', 0))
            port = free.getsockname()[1]
        order = dict(flags=[str(flag) for flag in flags], script=str(ROOT / script), processes=processes, before=before,
                     port=port, output=str(output))
        process.stdin.write(json.dumps(order) + '\n')
        process.stdin.flush()
        codes = json.loads(process.stdout.readline())
        texts = [Path(f'{output}{rank}').read_text() for rank in range(processes)]
        assert all((code == 0) == ok for code in codes), (codes, *texts)
        return texts[0] if ok else ''.join(texts)
    return launch


@pytest.fixture(scope='module')
def small(level):
    """Flags of a short run; flags behind them win."""
    return [f'--init_from={level}/warm_start', f'--dataset={level}', '--max_steps=2', '--questions_per_step=6',
            '--rollouts_per_question=4', '--max_response_tokens=24', '--updates_per_step=2', '--eval_every=0',
            '--eval_questions=3', '--eval_sampled=false', '--print_every=0', '--learning_rate=1e-3', '--warmup_steps=0']


def subset(level, path, count, **columns):
    """`count` training questions as a file of their own, with some columns replaced."""
    rows = Dataset.from_parquet(str(level / 'train.parquet')).select(range(count))
    for name, values in columns.items():
        feature = rows.features[name]
        rows = rows.remove_columns(name).add_column(name, values, feature=feature)
    rows.to_parquet(str(path))
    return path


def weights(folder):
    return load_file(Path(folder, 'model.safetensors'))


def distance(a, b):
    """Largest difference between the weights of two folders."""
    a, b = weights(a), weights(b)
    assert a.keys() == b.keys()
    return max((a[name] - b[name]).abs().max().item() for name in a)


def without_times(records):
    return [{key: value for key, value in record.items() if not key.startswith(('time/', 'memory/'))}
            for record in records if 'config' not in record]


def passes(file, rank=0):
    return [json.loads(line) for line in Path(f'{file}{rank}').read_text().splitlines()]


def printed(text):
    """'evaluation eval/accuracy 0.083 ...' or eval.py's last line -> the numbers as printed."""
    words = text.split()
    return {name.removeprefix('eval/'): value for name, value in zip(words, words[1:])
            if name.removeprefix('eval/') in ('accuracy', 'format', 'truncated')}
