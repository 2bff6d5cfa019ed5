"""Never lose a run: whatever ends it, the same command goes on as if nothing had happened; bad numbers and
bad data are refused. The slow ones (pytest -m slow) kill real processes at random and watch the memory."""
import ast
import io
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy
import pytest
import torch
from datasets import Features, Image, List, Value
from helpers import ROOT, distance, norm, read_log, run_train, weights, without_times
from PIL import Image as Picture
from pyarrow import Table, parquet

import model as models
import rollout

# before= of launch: rank 0 dies as by SIGKILL when it has come so often to a place of its saving
DIE = '''
import os, shutil, signal
from pathlib import Path
import transformers
seen = []
def die(place, when):
    seen.append(place)
    if RANK == 0 and len(seen) == when:
        os.kill(os.getpid(), signal.SIGKILL)
'''
PLACES = {
    'weights are written': '''
save = transformers.PreTrainedModel.save_pretrained
def cut_off(self, folder):
    save(self, folder)
    os.truncate(folder / 'model.safetensors', 1000)
    die('weights', 5)
    save(self, folder)
transformers.PreTrainedModel.save_pretrained = cut_off
''',
    'all is written, not renamed': '''
replace = Path.replace
def not_yet(self, target):
    if self.name.startswith('step_'):
        die('rename', 5)
    return replace(self, target)
Path.replace = not_yet
''',
    'latest/ is old': '''
symlink_to = Path.symlink_to
def not_yet(self, target):
    die('link', 5)
    symlink_to(self, target)
Path.symlink_to = not_yet
''',
    'an old one is deleted': '''
rmtree = shutil.rmtree
def half(path, **how):
    if Path(path).name == 'step_000002' and Path(path).exists():
        (Path(path) / 'model.safetensors').unlink()
        die('delete', 1)
    rmtree(path, **how)
shutil.rmtree = half
'''}


@pytest.fixture(scope='module')
def flags(level, small):
    """A run of eight steps, six of them an epoch, behind which ARS lowers G; saved at every step."""
    rows = parquet.read_table(level / 'train.parquet').slice(0, 24)
    parquet.write_table(rows, level / 'short.parquet')
    (level / 'half.py').write_text(  # every other question tells all lengths apart: 8 of 8 stay there
        'def half(response, question):\n    return len(response) * (int(question["id"][6:]) % 2)\n')
    return [*small, '--max_steps=8', '--questions_per_step=4', '--rollouts_per_question=8', '--eval_every=3',
            '--save_every=1', '--auto_resume', '--learning_rate=2e-4', '--beta=0.1',
            '--max_response_tokens=12', f'--reward={level}/half.py:half', f'--dataset={level}/short.parquet']


@pytest.fixture(scope='module')
def whole(flags, launch, tmp_path_factory):
    """whole(processes) -> the folder of that run, never interrupted."""
    made = {}

    def whole(processes=1):
        if processes not in made:
            made[processes] = tmp_path_factory.mktemp('whole') / 'run'
            launch(*flags, f'--out_dir={made[processes]}', processes=processes)
        return made[processes]
    return whole


def same_run(run, whole):
    """Weights, moments, state and log, bit by bit."""
    for name in weights(whole / 'latest'):
        assert torch.equal(weights(run / 'latest')[name], weights(whole / 'latest')[name]), name
    for file in sorted((whole / 'latest').glob('rank*.pt')):
        ours, theirs = (torch.load(folder / 'latest' / file.name, weights_only=True)
                        for folder in (run, whole))
        assert repr(ours) == repr(theirs)
    assert all(models.newest(folder, print) == (folder / 'latest').resolve() for folder in (run, whole))
    ours, theirs = (json.loads((folder / 'latest' / 'state.json').read_text()) for folder in (run, whole))
    for state in ours, theirs:
        state['settings']['out_dir'] = ''
        state.pop('files')
    assert ours == theirs
    assert without_times(read_log(run)) == without_times(read_log(whole))
    assert sorted(path.name for path in run.iterdir()) == sorted(path.name for path in whole.iterdir())


def test_the_run_has_what_can_be_lost(whole):
    """Two epochs, a G that changes, evaluations in between, a best that is older than the end."""
    log = read_log(whole())[2:]
    assert [record['epoch'] for record in log] == [0] * 6 + [1] * 2
    assert [record['rollouts_per_question'] for record in log] == [8] * 6 + [7] * 2
    assert [record['step'] for record in log if 'eval/accuracy' in record] == [3, 6, 8]
    assert distance(whole() / 'step_000007', whole() / 'step_000008') > 1e-5


@pytest.mark.parametrize('place, processes', [*((place, 1) for place in PLACES), ('latest/ is old', 2)])
def test_killed_while_saving(whole, flags, launch, tmp_path, place, processes):
    """C4: killed at this place; the same command then ends as if nothing had happened."""
    out = tmp_path / 'out'
    launch(*flags, f'--out_dir={out}', processes=processes, before=DIE + PLACES[place], ok=False)
    assert 2 <= read_log(out)[-1]['step'] < 8
    launch(*flags, f'--out_dir={out}', processes=processes)
    same_run(out, whole(processes))


@pytest.mark.parametrize('file', ['model.safetensors', 'rank0.pt', 'state.json', 'tokenizer.json'])
def test_a_torn_checkpoint_is_skipped(whole, flags, launch, tmp_path, file):
    """C4: the disk lost the end of a file of the newest one: a warning, and the one before it serves."""
    out = tmp_path / 'out'
    shutil.copytree(whole(), out, symlinks=True)
    os.truncate(out / 'step_000008' / file, (out / 'step_000008' / file).stat().st_size // 2)
    text = launch(*flags, f'--out_dir={out}')
    assert f'warning: {out}/step_000008 is torn' in text and 'step 8/8' in text and 'step 7/8' not in text
    same_run(out, whole())


def test_traces_of_a_kill_are_no_hindrance(whole, flags, launch, tmp_path):
    """Folders written aside, a line of the log cut off, a clock that went back between two runs."""
    out = tmp_path / 'out'
    shutil.copytree(whole(), out, symlinks=True)
    shutil.rmtree(out / 'step_000008')
    (out / 'latest').unlink()
    (out / 'latest').symlink_to('step_000007')
    shutil.copytree(out / 'step_000007', out / 'step_000008.tmp')
    shutil.copytree(out / 'step_000007', out / 'best.tmp')
    os.utime(out / 'step_000007', (time.time() + 9999, time.time() + 9999))
    log = (out / 'log.jsonl').read_text()
    (out / 'log.jsonl').write_text(log[:-20])
    launch(*flags, f'--out_dir={out}', '--keep_checkpoints=1')
    assert models.newest(out, print) == (out / 'latest').resolve() == out / 'step_000008'
    assert without_times(read_log(out)) == without_times(read_log(whole()))
    assert {path.name for path in out.iterdir()} == {'latest', 'log.jsonl', 'step_000008'}


def test_a_start_that_fails_leaves_the_log_alone(whole, flags, launch, tmp_path):
    shutil.copytree(whole(), tmp_path / 'out', symlinks=True)
    before = (tmp_path / 'out' / 'log.jsonl').read_text()
    for wrong in '--init_from=nowhere', '--dataset=nowhere', '--reward=nowhere.py:f', '--max_prompt_tokens=3':
        launch(*flags, f'--out_dir={tmp_path}/out', '--auto_resume=false', wrong, ok=False)
        assert (tmp_path / 'out' / 'log.jsonl').read_text() == before


def test_ranks_take_the_same_checkpoint_and_questions(whole, flags, launch, tmp_path):
    """What rank 0 finds counts for all: rank 1 sees no checkpoint, and cannot read a question."""
    before = '''
import model, rollout
if RANK == 1:
    model.newest = lambda *args: None
    encode = rollout.encode
    def unreadable(question, *args):
        if question['id'] == 'train-3' and not hasattr(rollout, 'read'):
            rollout.read = True
            raise OSError('stale file handle')
        return encode(question, *args)
    rollout.encode = unreadable
'''
    out = tmp_path / 'out'
    shutil.copytree(whole(2), out, symlinks=True)
    shutil.rmtree(out / 'step_000008')
    launch(*flags, f'--out_dir={out}', processes=2, before=before)
    same_run(out, whole(2))


def test_nothing_whole_is_left(whole, flags, launch, tmp_path):
    """All torn: resume says so in one line; auto_resume starts afresh."""
    out = tmp_path / 'out'
    shutil.copytree(whole(), out, symlinks=True)
    for folder in out.glob('step_*'):
        (folder / 'config.json').unlink()
    text = launch(*flags, f'--out_dir={out}', '--init_from=resume', ok=False)
    assert f'error: init_from = resume, but {out} has no whole checkpoint' in text
    assert 'step 1/8' in launch(*flags, f'--out_dir={out}')
    same_run(out, whole())


@pytest.mark.parametrize('key, value', [('seed', 2), ('questions_per_step', 2), ('rollouts_per_question', 3)])
def test_another_run_is_not_resumed(whole, flags, launch, key, value):
    """C6, C8: the position in the data means something else with another seed, size or data set."""
    text = launch(*flags, f'--out_dir={whole()}', f'--{key}={value}', ok=False)
    assert f'error: {key} = {value}: to resume {whole()}/step_000008 keep ' in text


def test_another_data_set_is_not_resumed(whole, flags, launch, level):
    text = launch(*flags, f'--out_dir={whole()}', f'--dataset={level}', ok=False)
    assert 'error: dataset = ' in text and 'short.parquet' in text


# ---------------------------------------------------------------------------------------------- signals

SIGNAL = """
import mdap, os, signal
align, steps = mdap.align, []
def and_signal(*args):
    steps.append(1)
    if len(steps) == 5 and RANK == WORLD - 1:
        os.kill(os.getpid(), signal.SIG)
    return align(*args)
mdap.align = and_signal
"""


@pytest.mark.parametrize('name, processes', [('SIGTERM', 1), ('SIGINT', 1), ('SIGTERM', 2)])
def test_signals_end_after_the_step(whole, flags, launch, tmp_path, name, processes):
    """The step is finished and saved, one line says so; also where only one rank got the signal."""
    out, before = tmp_path / 'out', SIGNAL.replace('SIG)', f'{name})').replace('WORLD', str(processes))
    text = launch(*flags, f'--out_dir={out}', '--save_every=0', processes=processes, before=before, ok=False)
    assert f'stopped by a signal after step 5; --auto_resume goes on from {out}/latest' in text
    assert 'Traceback' not in text and read_log(out)[-1]['step'] == 5
    launch(*flags, f'--out_dir={out}', processes=processes)
    same_run(out, whole(processes))


# ------------------------------------------------------------------------------------------------- disk

@pytest.mark.parametrize('processes', [1, 2])
def test_disk_full_for_a_while(whole, flags, launch, tmp_path, processes):
    """The last rank's fourth shard finds no room: a warning, no checkpoint 4, the run goes on to its end."""
    before = f"""
import torch
save, calls = torch.save, []
def full(what, file):
    calls.append(file)
    if RANK == {processes - 1} and len(calls) == 4:
        file.write_bytes(b'half of it')
        raise OSError(28, 'No space left on device')
    save(what, file)
torch.save = full
"""
    out = tmp_path / 'out'
    text = launch(*flags, f'--out_dir={out}', '--keep_checkpoints=9', processes=processes, before=before)
    assert f'{out}/step_000004 could not be written' in text and 'No space left' in text
    steps = [f'step_00000{i}' for i in (1, 2, 3, 5, 6, 7, 8)]
    assert sorted(path.name for path in out.glob('step_*')) == steps
    for name in steps[3:]:
        shutil.rmtree(out / name)
    launch(*flags, f'--out_dir={out}', processes=processes)  # from step 3
    same_run(out, whole(processes))


def test_files_limited_in_size(flags, launch, tmp_path):
    """A real limit, below the size of the weights, from the first step on: the first save warns, the last
    one is an error with one line, and nothing half-written is left."""
    before = 'import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))'
    text = launch(*flags, f'--out_dir={tmp_path}/out', '--max_steps=2', before=before, ok=False)
    assert f'{tmp_path}/out/step_000001 could not be written' in text and 'Traceback' not in text
    assert f'error: {tmp_path}/out/step_000002 could not be written: rank 0: ' in text.splitlines()[-1]
    assert {path.name for path in (tmp_path / 'out').iterdir()} == {'log.jsonl'}


@pytest.mark.parametrize('length', [['--max_steps=3'], ['--max_steps=0', '--epochs=1', '--greso']])
def test_best_and_last_that_cannot_be_written(flags, launch, tmp_path, length):
    """Where best/ fails the checkpoint still comes; where the last checkpoint fails the run ends in an error,
    also when the data end before max_steps; the log has its last line."""
    for name, ok in ('best', True), ('step_', False):
        before = f'''
import transformers
save = transformers.PreTrainedModel.save_pretrained
def full(self, folder):
    if folder.name.startswith('{name}'):
        raise OSError(28, 'No space left on device')
    save(self, folder)
transformers.PreTrainedModel.save_pretrained = full
import eval
summary, calls = eval.summary, []
eval.summary = lambda records: calls.append(1) or summary(records) | {{'accuracy': len(calls) / 100}}
'''
        out = tmp_path / name
        text = launch(*flags, *length, '--eval_every=1', f'--out_dir={out}', before=before, ok=ok)
        assert f'{out}/{name}' in text and 'could not be written' in text and 'Traceback' not in text
        assert ('error: ' in text) != ok and ((out / 'latest' / 'state.json').is_file()) == ok
        assert 'eval/accuracy' in read_log(out)[-1] and read_log(out)[-1]['step'] >= 3


def test_no_place_for_the_log(flags, launch, tmp_path):
    (tmp_path / 'file').write_text('')
    text = launch(*flags, f'--out_dir={tmp_path}/file/out', ok=False)
    assert text.splitlines()[-1].startswith('error: ') and f"out_dir = '{tmp_path}/file/out'" in text


def test_checkpoints_are_bounded_and_best_survives(whole):
    names = sorted(path.name for path in whole().iterdir())
    assert [name for name in names if name != 'best'] == ['latest', 'log.jsonl', 'step_000007', 'step_000008']
    assert (whole() / 'latest').resolve().name == 'step_000008'


# ---------------------------------------------------------------------------------------------- numbers

REWARD = """
import os
calls = []
def reward(response, question):
    calls.append(question['id'])
    broken = len(calls) in BROKEN and os.environ.get('RANK', '0') == 'HERE'
    return float('nan') if broken else float(len(response) % 3)
"""


@pytest.mark.parametrize('processes', [1, 2])
def test_a_nan_skips_the_update_everywhere(small, level, launch, tmp_path, processes):
    """L12: nan in one answer's reward on the last rank, in step 2: no weight of any rank becomes nan, the
    step is counted, the next ones go on."""
    (tmp_path / 'reward.py').write_text(REWARD.replace('HERE', str(processes - 1)).replace(
        'BROKEN', f'range({24 // processes + 1}, {24 // processes + 3})'))
    flags = [*small, f'--reward={tmp_path}/reward.py:reward', f'--out_dir={tmp_path}/out', '--max_steps=4',
             '--eval_questions=1', '--check_every=1', '--pruning=none', '--adaptive_rollouts=False']
    before = """
import eval
eval.evaluate.__globals__['rewarding'] = type('R', (), dict(vars(eval.rewarding)) | {
    'score': staticmethod(lambda texts, *rest: [{'accuracy': 0.0, 'format': 0.0} for _ in texts])})
"""
    text = launch(*flags, processes=processes, before=before)
    log = read_log(tmp_path / 'out')[2:]
    assert log[1]['updates'] < 2 == log[0]['updates'] == log[2]['updates']
    assert 'warning: step 2: gradient norm nan, this update is skipped' in text
    assert all(torch.isfinite(x).all() for x in weights(tmp_path / 'out' / 'latest').values())


@pytest.mark.parametrize('processes', [1, 2])
def test_too_many_bad_steps_end_the_run(small, level, launch, tmp_path, processes):
    """L12: with max_bad_steps = 1 the second one in a row is the end: step, questions, last good checkpoint
    are named, and that is of the last step without nan."""
    (tmp_path / 'reward.py').write_text(REWARD.replace('HERE', str(processes - 1)).replace(
        'BROKEN', f'range({24 // processes + 1}, 999)'))
    flags = [*small, f'--reward={tmp_path}/reward.py:reward', f'--out_dir={tmp_path}/out', '--max_steps=6',
             '--save_every=1', '--max_bad_steps=1', '--pruning=none', '--adaptive_rollouts=False']
    text = launch(*flags, processes=processes, ok=False, before='import eval\neval.evaluate = lambda *a: []\n'
                  'eval.summary = lambda records: {"accuracy": 0.5, "format": 0.0}')
    assert 'step 3: 2 steps in a row had a gradient that is nan' in text
    assert f'last good checkpoint: {tmp_path}/out/step_000001' in text
    assert text.count("'train-") >= 6 and 'Traceback' not in text


def test_a_step_without_signal_changes_nothing(small, launch, tmp_path):
    """L3, D7: equal rewards, then all answers cut off and masked: weights, moments and step count of the
    optimizer stay, whatever weight decay and momentum, and no 0 / 0 is logged."""
    (tmp_path / 'reward.py').write_text('def reward(response, question):\n    return 0.5\n')
    common = [*small, '--weight_decay=0.1', '--beta=0', '--save_every=1', '--keep_checkpoints=9']
    launch(*common, f'--reward={tmp_path}/reward.py:reward', f'--out_dir={tmp_path}/equal')
    launch(*common, '--mask_truncated', '--max_response_tokens=1', f'--out_dir={tmp_path}/cut')
    start = small[0].removeprefix('--init_from=')
    for run in 'equal', 'cut':
        assert distance(tmp_path / run / 'latest', start) == 0
        shard = torch.load(tmp_path / run / 'latest' / 'rank0.pt', weights_only=True)
        assert shard['state'] == {}
        for record in read_log(tmp_path / run)[2:]:
            assert record['updates'] == 0 and all(value == value for value in record.values())


# ------------------------------------------------------------------------------------------------ ranks

def test_weights_that_differ_are_found(small, launch, tmp_path):
    """D1: a rank whose weights went another way is told after the first step, not after a day."""
    before = """
import model
train = model.Policy.eval
def and_drift(self):
    if RANK == 1 and hasattr(self, 'stepped'):
        next(self.parameters()).data.add_(1e-4)
    self.stepped = True
    return train(self)
model.Policy.eval = and_drift
"""
    text = launch(*small, f'--out_dir={tmp_path}/out', processes=2, before=before, ok=False)
    assert 'error: step 1: the weights of the ranks differ' in text


def own_reward(folder, code):
    (folder / 'reward.py').write_text(
        'import os, signal\nfrom pathlib import Path\ncalls = []\n'
        f'def reward(response, question):\n    calls.append(1)\n{code}\n    return len(response) % 3\n')
    return f'--reward={folder}/reward.py:reward'


def test_a_rank_that_dies_takes_the_others_down(small, tmp_path):
    """The other rank waits in a collective; the launcher ends it within seconds and shows why."""
    mine = own_reward(
        tmp_path, '    assert os.environ["RANK"] != "1" or len(calls) < 30, "rank 1 is no more"')
    start = time.time()
    text = run_train(*small, mine, f'--out_dir={tmp_path}/out', '--max_steps=9', processes=2, ok=False)
    assert 'AssertionError: rank 1 is no more' in text and time.time() - start < 120
    assert 'error: ' not in text.replace('Error: ', '')


def test_torchrun_restarts(small, tmp_path):
    """--max-restarts: rank 1 is killed in the middle of step 3, once; the end is that of a quiet run.
    By itself torchrun keeps one store for all attempts, where a restarted rank may find the address of a dead
    one and wait for ever: train.py says so. With a store of its own for each attempt that cannot be."""
    kill = """    if Path('FLAG').exists() and os.environ.get('RANK') == '1' and len(calls) == 30:
        Path('FLAG').unlink()
        os.kill(os.getpid(), signal.SIGKILL)""".replace('FLAG', str(tmp_path / 'flag'))
    mine = [*small, own_reward(tmp_path, kill), '--max_steps=5', '--save_every=1', '--auto_resume']
    ends = []
    for name, switch in ('quiet', {}), ('killed', {'TORCH_DISABLE_SHARE_RDZV_TCP_STORE': '1'}):
        done = subprocess.run(
            [sys.executable, '-m', 'torch.distributed.run', '--standalone', '--nproc_per_node=2',
             '--max-restarts=3', str(ROOT / 'train.py'), *mine, f'--out_dir={tmp_path}/{name}'],
            capture_output=True, text=True, timeout=250, cwd=ROOT,
            env=os.environ | {'OMP_NUM_THREADS': '1'} | switch)
        assert done.returncode == 0, done.stdout + done.stderr
        assert ('TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1' in done.stdout) == (name == 'quiet')
        ends.append(weights(tmp_path / name / 'latest'))
        (tmp_path / 'flag').touch()
    assert [r['step'] for r in read_log(tmp_path / 'killed')[1:]] == [0, 1, 2, 3, 4, 5]
    (tmp_path / 'flag').unlink()  # left by the last turn; the killed run has used the first one
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])


def test_two_nodes(small, launch, tmp_path):
    """Two launchers of one process each, as on two machines, over loopback: the weights of one process."""
    flags = [*small, '--align=4', '--learning_rate=5e-5']
    with socket.socket() as free:
        free.bind(('127.0.0.1', 0))
        port = free.getsockname()[1]
    nodes = [subprocess.Popen(
        [sys.executable, '-m', 'torch.distributed.run', '--nnodes=2', '--nproc_per_node=1',
         '--rdzv_backend=c10d', f'--rdzv_endpoint=127.0.0.1:{port}', '--rdzv_id=fastrl',
         str(ROOT / 'train.py'), *flags, f'--out_dir={tmp_path}/two'], stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, cwd=ROOT, env=os.environ | {'OMP_NUM_THREADS': '1'})
        for _ in range(2)]
    texts = [node.communicate(timeout=250)[0] for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], texts
    assert sum('done: ' in text for text in texts) == 1  # one node has rank 0
    launch(*flags, f'--out_dir={tmp_path}/one')
    moved = norm(tmp_path / 'one' / 'latest', small[0].removeprefix('--init_from='))
    assert norm(tmp_path / 'one' / 'latest', tmp_path / 'two' / 'latest') < 1e-3 * moved


# ------------------------------------------------------------------------------------------------- data

def encoded(picture, kind='PNG', **how):
    file = io.BytesIO()
    picture.save(file, kind, **how)
    return {'bytes': file.getvalue(), 'path': None}


def shades(mode, size=(56, 56)):
    """A picture whose left half is dark."""
    ramp = numpy.linspace(0, 255, size[0] * size[1]).reshape(size[::-1])
    if mode == 'I;16':
        return Picture.fromarray((ramp * 257).astype('uint16'))
    return Picture.fromarray(ramp.astype('uint8')).convert(mode)


@pytest.fixture(scope='module')
def odd_rows():
    """id -> (picture, problem, answer, what the warning says; None: it is used)."""
    mark, good = '<image>What is the area of the shape?', encoded(shades('RGB'))
    rows = {f'good-{i}': (good, mark, '4', None) for i in range(3)}
    rows |= {'cmyk': (encoded(shades('CMYK'), 'JPEG'), mark, '4', None),
             'deep': (encoded(shades('I;16')), mark, '4', None),
             'palette': (encoded(shades('P')), mark, '4', None),
             'pixel': (encoded(shades('RGB', (1, 1))), mark, '4', None),
             'animated': (encoded(shades('P'), 'GIF', save_all=True, append_images=[shades('L')]), mark, '4',
                          None),
             'wide': (encoded(shades('L', (20000, 40))), mark, '4', 'aspect ratio'),
             'cut': ({'bytes': good['bytes'][:len(good['bytes']) // 2], 'path': None}, mark, '4', ''),
             'noise': ({'bytes': b'no picture at all', 'path': None}, mark, '4', 'cannot identify image'),
             'empty': (good, '  ', '4', 'must both be there'),
             'null': (good, mark, None, 'must both be there'),
             'two marks': (good, mark + '<image>', '4', '2 <image> marks and 1 images'),
             'no mark': (good, 'What is the area?', '4', '0 <image> marks and 1 images')}
    return rows


def test_bad_rows_are_left_out_at_the_start(small, launch, odd_rows, tmp_path):
    """V8, A1: broken, far too wide, CMYK, 16-bit, palette, animated, one-pixel pictures, empty problems, no
    answer, marks that do not fit, a megabyte of text, an id that comes twice: used, repaired or left out with
    id and reason, before the first step."""
    rows = [{'id': key, 'images': [picture], 'problem': problem, 'answer': answer}
            for key, (picture, problem, answer, _) in odd_rows.items()]
    rows += [rows[0], rows[0] | {'id': 'megabyte', 'problem': rows[0]['problem'] + ' area' * 200_000}]
    text = Value('string')
    features = Features(id=text, images=List(Image()), problem=text, answer=text)
    parquet.write_table(Table.from_pylist(rows, features.arrow_schema), tmp_path / 'data.parquet')
    text = launch(*small, f'--dataset={tmp_path}/data.parquet', '--questions_per_step=9', '--max_steps=2',
                  '--eval_questions=0', f'--out_dir={tmp_path}/out')
    told = {line.split("'")[1]: line for line in text.splitlines() if 'is left out: ' in line}
    bad = {key: why for key, (*_, why) in odd_rows.items() if why is not None}
    assert told.keys() == {*bad, 'megabyte'} and 'longer than max_prompt_tokens = 2048' in told['megabyte']
    assert all(why in told[key] for key, why in bad.items())
    assert text.count(f'{len(bad) + 1} of {len(rows)} questions are left out, 1 have the id of another') == 2
    assert len(read_log(tmp_path / 'out')) == 4


def test_deep_pictures_keep_their_greys(level):
    """16 bits a point are scaled, not cut off at white; unless they hold no more than 8."""
    _, processor = models.load(str(level / 'warm_start'))
    settings = {'system_prompt': '', 'prompt_suffix': '', 'examples': []}
    light = shades('L')
    eight = Picture.fromarray(numpy.asarray(light).astype('uint16'))
    light, deep, eight = (rollout.encode({'problem': '<image>a', 'images': [x]}, processor, settings)
                          for x in (light, shades('I;16'), eight))
    assert (light['pixel_values'] - deep['pixel_values']).abs().max() < 0.02
    assert torch.equal(light['pixel_values'], eight['pixel_values'])


# ------------------------------------------------------------------------------------------------ trust

def test_no_code_of_a_checkpoint_runs_unasked(level, tmp_path):
    """A config that names a module of its own is refused, and the module not even imported."""
    folder = tmp_path / 'model'
    shutil.copytree(level / 'warm_start', folder)
    config = json.loads((folder / 'config.json').read_text())
    config |= {'model_type': 'mine', 'auto_map': {'AutoConfig': 'mine.Config'}}
    (folder / 'config.json').write_text(json.dumps(config))
    (folder / 'mine.py').write_text(f"open('{tmp_path}/touched', 'w')\nclass Config: pass\n")
    with pytest.raises((ValueError, OSError), match='trust_remote_code'):
        models.load(str(folder))
    assert not (tmp_path / 'touched').exists()


def test_nothing_is_unpickled_or_evaluated():
    """torch.load only with weights_only=True; no eval, exec or pickle; runpy only for configs and rewards."""
    for path in [*ROOT.glob('*.py'), *ROOT.glob('data/*.py')]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func)
                assert name not in ('eval', 'exec', 'compile', '__import__') and 'pickle' not in name, path
                assert name != 'torch.load' or 'weights_only=True' in ast.unparse(node), path
                assert 'runpy' not in name or path.name in ('configurator.py', 'reward.py'), path


# ------------------------------------------------------------------------------------------------- slow

@pytest.mark.slow
@pytest.mark.parametrize('processes', [1, 2])
def test_killed_twenty_times(whole, flags, tmp_path, processes):
    """C1, C2, C4, C5: the README's command, killed by SIGKILL at 20 random moments (10 on two processes) and
    started again each time, ends with the weights, moments, state and log of a run never interrupted."""
    whole, out, rng, reached = tmp_path / 'whole', tmp_path / 'out', random.Random(processes), []
    torchrun = ['-m', 'torch.distributed.run', '--standalone', f'--nproc_per_node={processes}']
    start = [sys.executable, *(torchrun if processes > 1 else []), str(ROOT / 'train.py'), *flags,
             '--max_steps=40']
    how = dict(cwd=ROOT, stdout=subprocess.DEVNULL, env=os.environ | {'OMP_NUM_THREADS': '1'})
    subprocess.run([*start, f'--out_dir={whole}'], check=True, timeout=280, **how)
    log = out / 'log.jsonl'
    while len(reached) < 20 // processes:
        began = time.time()
        run = subprocess.Popen(
            [*start, f'--out_dir={out}'], stderr=subprocess.DEVNULL, start_new_session=True, **how)
        while run.poll() is None and not (log.exists() and log.stat().st_mtime > began):
            time.sleep(0.01)  # until it has opened its log, and then a random while
        time.sleep(rng.uniform(0, 4))
        if run.poll() is None:
            for process in Path('/proc').glob('[0-9]*'):  # the launcher and its ranks, which outlive it
                with suppress(OSError):
                    if f'--out_dir={out}\0' in (process / 'cmdline').read_text():
                        os.kill(int(process.name), signal.SIGKILL)
            run.wait()
            reached.append(len(log.read_text().splitlines()))
        else:  # it came to its end: once more from the start
            assert run.returncode == 0
            shutil.rmtree(out)
    print('lines of the log at each kill:', reached)
    subprocess.run([*start, f'--out_dir={out}'], check=True, timeout=280, **how)
    same_run(out, whole)


@pytest.mark.slow
def test_memory_does_not_climb(level, small, launch, tmp_path):
    """P3: 300 steps; the largest resident memory ever grows by less than 5 % after the first 50."""
    launch(*small, '--max_steps=300', '--learning_rate=1e-5', f'--out_dir={tmp_path}/out')
    peaks = [record['memory/peak_gb'] for record in read_log(tmp_path / 'out')[2:]]
    print('GB after steps 50 and 300:', peaks[49], peaks[-1])
    assert len(peaks) == 300 and peaks[-1] < 1.05 * peaks[49]
