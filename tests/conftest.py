"""One thread a process: the models here are too small to share, and subprocesses of tests want a
core. And what tests of whole runs share: a hardly trained toy, and a launcher of train.py and eval.py.

Starting Python, torch and transformers costs more than a run of a few steps on the toy. So only some tests
use the README's commands as a user types them (helpers.run_train); the others are forks of a process that has
done the imports (`launch`), which also lets a test put code before a run, to count or to replace something.
"""
import itertools
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

os.environ['HF_HUB_OFFLINE'] = '1'  # read at import: nothing here may reach for the network
import torch  # noqa: E402
from helpers import ROOT  # noqa: E402

from data import toy  # noqa: E402

torch.set_num_threads(1)
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


@pytest.fixture(scope='session')
def level(tmp_path_factory):
    """The folder of a hardly trained toy: some answers have the right format, so that rewards differ."""
    folder = tmp_path_factory.mktemp('made')
    toy.prepare(folder, 1, 0, effort=0.1)
    return folder / 'level1'


@pytest.fixture(scope='session')
def forks(tmp_path_factory):
    """A process with all imports done; it forks once per rank for each line it reads."""
    process = subprocess.Popen(
        [sys.executable, '-c', FORKS, str(ROOT)], text=True, cwd=ROOT,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env=os.environ | {'OMP_NUM_THREADS': '1', 'HF_HUB_OFFLINE': '1'})
    yield process, tmp_path_factory.mktemp('outputs')
    process.stdin.close()
    process.wait(30)


@pytest.fixture(scope='session')
def launch(forks):
    """launch(*flags, ...) -> what rank 0 (with ok=False: every rank) printed; checks the exit codes."""
    process, outputs = forks
    count = itertools.count()

    def launch(*flags, script='train.py', processes=1, before='', ok=True):
        output = outputs / f'{next(count)}.'
        with socket.socket() as free:
            free.bind(('127.0.0.1', 0))
            port = free.getsockname()[1]
        order = dict(flags=[str(flag) for flag in flags], script=str(ROOT / script), processes=processes,
                     before=before, port=port, output=str(output))
        process.stdin.write(json.dumps(order) + '\n')
        process.stdin.flush()
        codes = json.loads(process.stdout.readline())
        texts = [Path(f'{output}{rank}').read_text() for rank in range(processes)]
        assert all((code == 0) == ok for code in codes), (codes, *texts)
        return texts[0] if ok else ''.join(texts)
    return launch


@pytest.fixture(scope='session')
def small(level):
    """Flags of a short run; flags behind them win."""
    return [f'--init_from={level}/warm_start', f'--dataset={level}', '--max_steps=2', '--warmup_steps=0',
            '--questions_per_step=6', '--rollouts_per_question=4', '--max_response_tokens=24',
            '--updates_per_step=2', '--learning_rate=1e-3',
            '--eval_every=0', '--eval_questions=3', '--eval_sampled=false', '--print_every=0']
