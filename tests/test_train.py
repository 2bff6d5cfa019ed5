"""train.py and eval.py from the outside: a few steps on a hardly trained toy, on one process and two."""
import itertools
import json
import math
import random
import re
import shutil

import pytest
import torch
from datasets import Dataset
from helpers import (
    COIN,
    COUNT_ROWS,
    distance,
    norm,
    passes,
    read_log,
    run_train,
    subset,
    weights,
    without_times,
)
from transformers import AutoModelForImageTextToText

import mdap
from model import load, load_optimizer, make_optimizer, save

LOGGED = set('''step epoch rollouts_per_question trajectories_sampled trajectories_trained
    tokens_sampled tokens_trained reward/mean reward/accuracy reward/format
    prune/kept_mean prune/kept_max prune/flat_groups rollout/length rollout/truncated
    loss/policy loss/kl loss/clip_fraction loss/entropy loss/grad_norm lr
    time/step time/generate time/reward time/prune time/old time/ref time/update memory/peak_gb'''.split())


def printed(text):
    """'evaluation eval/accuracy 0.083 ...' or eval.py's table -> the numbers as printed, of three digits."""
    found = re.findall(r'(?:^|eval/)(accuracy|format|truncated) +([\d.]+)', text, re.MULTILINE)
    return {name: round(float(value), 3) for name, value in found}


# ------------------------------------------------------------- one run, its log and its checkpoints


@pytest.fixture(scope='module')
def whole_run(small):
    """Flags that make a run long enough to look at: three steps, each evaluated and saved."""
    return [*small, '--max_steps=3', '--eval_every=1', '--eval_questions=20', '--save_every=1',
            '--keep_checkpoints=2']


@pytest.fixture(scope='module')
def first(whole_run, tmp_path_factory):
    """The README's command -> its out_dir and what it printed."""
    out = tmp_path_factory.mktemp('runs') / 'first'
    return out, run_train(*whole_run, f'--out_dir={out}')


@pytest.fixture(scope='module')
def answers(first, launch, tmp_path_factory):
    """eval.py on the first run's last checkpoint -> what it printed, what it wrote."""
    folder = tmp_path_factory.mktemp('answers')
    text = launch(f'--init_from={first[0]}/latest', f'--output={folder}', script='eval.py')
    (file,) = folder.glob('eval_*.json')
    return text, json.loads(file.read_text())


@pytest.fixture(scope='module')
def second(whole_run, level, answers, launch, tmp_path_factory):
    """The same run, tested on questions whose truth is what the first run answered: it gets better."""
    folder = tmp_path_factory.mktemp('second')
    (records,) = answers[1]['answers'].values()
    truth = [record['extracted'] or 'none' for record in records]
    rows = Dataset.from_parquet(str(level / 'test.parquet')).select(range(len(truth))).to_list()
    graded = Dataset.from_list([row | {'answer': answer} for row, answer in zip(rows, truth)])
    graded.to_parquet(str(folder / 'graded.parquet'))
    text = launch(*whole_run, f'--out_dir={folder}/out', f'--eval_dataset={folder}/graded.parquet')
    return folder / 'out', text


def test_log(first):
    """One line of settings, then one per step with all names and numbers that fit together (R14: also the
    share of answers that were cut off)."""
    config, start, *steps = read_log(first[0])
    assert config['config']['questions_per_step'] == 6 and config['config']['learning_rate'] == 1e-3
    assert start['step'] == 0 and 'eval/accuracy' in start
    assert [record['step'] for record in steps] == [1, 2, 3]
    for record in steps:
        assert LOGGED | {'eval/accuracy', 'eval/format'} <= set(record)
        assert all(math.isfinite(value) for value in record.values())
        G, trained = record['rollouts_per_question'], record['trajectories_trained']
        assert G == 4 and record['trajectories_sampled'] == 24 and 6 <= trained <= 24
        assert trained == pytest.approx(record['prune/kept_mean'] * 6) and trained % 2 == 0
        assert record['prune/kept_mean'] <= record['prune/kept_max'] <= G
        assert record['tokens_sampled'] == pytest.approx(record['rollout/length'] * 24)
        assert trained <= record['tokens_trained'] <= record['tokens_sampled'] <= 24 * 24
        assert record['reward/mean'] == pytest.approx(record['reward/format'] + record['reward/accuracy'])
        assert 0 <= record['prune/flat_groups'] <= 1 and 0 <= record['rollout/truncated'] <= 1
        assert record['loss/kl'] == 0 and record['loss/entropy'] > 0 and record['loss/grad_norm'] > 0
        parts = [record[f'time/{part}'] for part in ('generate', 'reward', 'prune', 'old', 'ref', 'update')]
        assert min(parts) >= 0 and sum(parts) == pytest.approx(record['time/step'])
        assert record['lr'] == 1e-3 and 0.05 < record['memory/peak_gb'] < 50
    assert sum(record['reward/mean'] for record in steps) > 0, 'the toy earns nothing: no test of anything'


def test_console(first):
    """The batch arithmetic as products, the sampler's settings, one line per step."""
    text = first[1]
    assert '6 questions x 4 rollouts = 24 trajectories a step; / 1 ranks = 24; 2 updates a step' in text
    assert 'forbidden ids [3, 4, 5, 6], end ids [2]' in text and '400 questions, 66 steps' in text
    assert sum(line.startswith('step ') for line in text.splitlines()) == 3


def test_checkpoint(first, level):
    """Layout; the newest two stay; the export opens with transformers, with the start's settings (C7)."""
    out = first[0]
    names = {path.name for path in out.iterdir()}
    assert names - {'best'} == {'step_000002', 'step_000003', 'latest', 'log.jsonl'}
    assert (out / 'latest').resolve() == out / 'step_000003'
    latest = out / 'latest'
    for name in ('model.safetensors', 'config.json', 'generation_config.json', 'tokenizer.json',
                 'tokenizer_config.json', 'preprocessor_config.json', 'state.json', 'rank0.pt'):
        assert (latest / name).is_file(), name
    state = json.loads((latest / 'state.json').read_text())
    assert state['step'] == 3 and state['world'] == 1 and state['ars']['rollouts'] == 4
    assert state['settings'] == read_log(out)[0]['config']
    for name in ('config.json', 'generation_config.json'):
        ours, start = (json.loads((folder / name).read_text()) for folder in (latest, level / 'warm_start'))
        for part in ('text_config', 'vision_config') if name == 'config.json' else ():
            ours[part].pop('dtype', None)  # the library adds it once a model was loaded
        assert ours == start, name
    model = AutoModelForImageTextToText.from_pretrained(latest)
    assert model.num_parameters() == sum(weight.numel() for weight in weights(latest).values())
    assert torch.equal(model.get_input_embeddings().weight, weights(latest)['model.embed_tokens.weight'])
    assert 1e-4 < distance(latest, level / 'warm_start') < 0.1


def test_same_seed_same_run(first, second, whole_run, launch, tmp_path):
    """The evaluation set aside, two runs of one seed log the same numbers; another seed does not."""
    def training(folder):
        return [{key: value for key, value in record.items() if not key.startswith('eval/')}
                for record in without_times(read_log(folder))]
    assert training(first[0]) == training(second[0])
    assert distance(first[0] / 'latest', second[0] / 'latest') == 0
    launch(*whole_run, '--eval_every=0', '--save_every=0', '--seed=2', f'--out_dir={tmp_path}')
    for ours, other in zip(training(first[0])[1:], training(tmp_path)[1:]):
        assert ours['tokens_sampled'] != other['tokens_sampled'] and ours['step'] == other['step']


def test_eval_prints_what_training_printed(first, second, answers, launch):
    """eval.py on latest/ and best/, without further flags, gives the scores that train.py printed."""
    lines = [line for line in first[1].splitlines() if line.startswith('evaluation')]
    assert len(lines) == 4 and printed(answers[0]) == printed(lines[-1]) and len(printed(lines[-1])) == 3
    (scores,) = answers[1]['scores'].values()
    assert scores['format'] == read_log(first[0])[-1]['eval/format'] and scores['questions'] == 20
    out, text = second
    scores = [record['eval/accuracy'] for record in read_log(out)[1:]]
    best = json.loads((out / 'best' / 'state.json').read_text())
    assert best['best'] == max(scores) > scores[0] and scores.index(max(scores)) == best['step']
    shown = launch(f'--init_from={out}/best', script='eval.py')
    lines = [line for line in text.splitlines() if line.startswith('evaluation')]
    assert printed(shown) == printed(lines[best['step']])
    assert 'temperature 0.0' in shown


def test_best_is_replaced_only_by_strictly_better(small, launch, tmp_path):
    """Scores 0.1 before training, then 0.3, 0.3, 0.2: best/ is step 1, and stays it."""
    before = '''
import eval
given, real = [0.1, 0.3, 0.3, 0.2], eval.summary
eval.summary = lambda records: real(records) | {'accuracy': given.pop(0)}
'''
    launch(*small, '--max_steps=3', '--eval_every=1', f'--out_dir={tmp_path}', before=before)
    state = json.loads((tmp_path / 'best' / 'state.json').read_text())
    assert state['step'] == 1 and state['best'] == 0.3 and (tmp_path / 'step_000003').is_dir()
    assert not (tmp_path / 'best' / 'rank0.pt').exists()
    assert json.loads((tmp_path / 'latest' / 'state.json').read_text())['best'] == 0.3


def test_a_new_run_in_an_old_folder_keeps_its_checkpoints(small, launch, tmp_path):
    """The oldest in time go, not the lowest in number: latest/ would point to nothing."""
    launch(*small, '--max_steps=3', '--save_every=1', f'--out_dir={tmp_path}')
    launch(*small, '--max_steps=1', '--keep_checkpoints=1', f'--out_dir={tmp_path}')
    assert [path.name for path in tmp_path.glob('step_*')] == ['step_000001']
    assert (tmp_path / 'latest' / 'state.json').is_file()


# ------------------------------------------------------------------- what is trained, and how often


def test_only_survivors_enter_the_passes(small, launch, tmp_path):
    """Old, reference and update pass see each surviving trajectory once, and nothing else."""
    launch(*small, '--beta=0.1', '--old_logps=recompute', f'--out_dir={tmp_path}/out', '--updates_per_step=3',
           '--tokens_per_microbatch=100', before=f'FILE = {str(tmp_path / "passes")!r}\n' + COUNT_ROWS)
    seen, steps = passes(tmp_path / 'passes'), read_log(tmp_path / 'out')[2:]
    assert sum(kind == 'step' for kind, *_ in seen) == 3 * len(steps)
    order = [kind for kind, _ in itertools.groupby(kind for kind, *_ in seen)]
    assert order == ['old', 'ref', *['update', 'step'] * 3] * 2
    for kind in ('old', 'ref', 'update'):
        rows, tokens = (sum(line[i] for line in seen if line[0] == kind) for i in (1, 2))
        assert rows == sum(record['trajectories_trained'] for record in steps)
        assert tokens == sum(record['tokens_trained'] for record in steps)
    assert all(record['trajectories_trained'] < record['trajectories_sampled'] for record in steps)
    assert sum(kind == 'update' for kind, *_ in seen) > 6, 'one micro-batch per update: the budget is no test'


def test_passes_that_are_not_needed_are_left_out(small, launch, tmp_path):
    """Without KL there is no reference pass, with the sampler's own log-probs no old one; as many updates
    with pruning as without; switching it off, or tau = 0, trains all trajectories."""
    for name, *flags in (('pruned',), ('none', '--pruning=none'), ('tau', '--tau=0')):
        out = tmp_path / name
        launch(*small, *flags, f'--out_dir={out}', before=f'FILE = {str(tmp_path / name)!r}\n' + COUNT_ROWS)
        seen, steps = passes(tmp_path / name), read_log(out)[2:]
        assert {kind for kind, *_ in seen} == {'update', 'step'}
        assert sum(kind == 'step' for kind, *_ in seen) == 4
        trained = [record['trajectories_trained'] for record in steps]
        assert sum(rows for _, rows, *_ in seen) == sum(trained)
        assert (trained == [24, 24]) == (name != 'pruned') and max(trained) <= 24
    assert without_times(read_log(tmp_path / 'none')) == without_times(read_log(tmp_path / 'tau'))


def test_each_question_once_per_epoch(level, small, launch, tmp_path):
    """L13: 13 questions, 4 a step: 3 steps an epoch, no question twice in one, another order in the next."""
    data = subset(level, tmp_path / 'data.parquet', 13)
    before = f'''
import json, reward
score = reward.score
def noted(text, owner, questions, *how, **settings):
    with open({str(tmp_path / "asked")!r} + str(RANK), 'a') as file:
        file.write(json.dumps([[question['id'] for question in questions], list(owner)]) + '\\n')
    return score(text, owner, questions, *how, **settings)
reward.score = noted
'''
    flags = [*small, f'--dataset={data}', '--questions_per_step=4', '--rollouts_per_question=2',
             '--max_steps=0', '--epochs=2', '--eval_questions=1', '--adaptive_rollouts=false',
             '--learning_rate=0']
    launch(*flags, f'--out_dir={tmp_path}/1', before=before)
    one = [ids for ids, owner in passes(tmp_path / 'asked') if len(owner) == 8]
    assert [record['epoch'] for record in read_log(tmp_path / '1')[2:]] == [0, 0, 0, 1, 1, 1]
    assert len(one) == 6 and all(len(set(sum(epoch, []))) == 12 for epoch in (one[:3], one[3:]))
    assert one[:3] != one[3:]
    (tmp_path / 'asked0').unlink()
    launch(*flags, f'--out_dir={tmp_path}/2', before=before, processes=2)
    halves = [[ids for ids, owner in passes(tmp_path / 'asked', rank) if len(owner) == 4] for rank in (0, 1)]
    assert [a + b for a, b in zip(*halves)] == one


# --------------------------------------------------------------- however it is cut, the same update


@pytest.fixture(scope='module')
def everything(small, launch, tmp_path_factory):
    """Two steps of three updates with old and reference passes, in one process, from a shared prefix."""
    flags = [*small, '--beta=0.1', '--old_logps=recompute', '--updates_per_step=3', '--align=6', '--tau=0.6',
             '--rollouts_per_question=8', '--learning_rate=5e-5']
    out = tmp_path_factory.mktemp('everything') / 'out'
    launch(*flags, f'--out_dir={out}')
    return flags, out


def assert_same_run(ours, theirs, start):
    """The same log and the same weights, which have moved far more than they may differ.

    Where a gradient is all rounding noise, Adam still moves by up to lr (5e-5 in these runs): a few weights
    may differ by as much, but not all of them together.
    """
    for a, b in zip(without_times(read_log(ours)), without_times(read_log(theirs)), strict=True):
        assert a == pytest.approx(b, rel=1e-3, abs=1e-5)
    assert distance(ours / 'latest', theirs / 'latest') < 5e-5
    assert distance(ours / 'latest', start) > 1e-4
    assert norm(ours / 'latest', theirs / 'latest') < 1e-3 * norm(ours / 'latest', start)


def test_two_processes_equal_one(everything, launch, level, tmp_path):
    """D1, D2, L1: ranks that cut different numbers of micro-batches end with the weights of one."""
    flags, out = everything
    launch(*flags, f'--out_dir={tmp_path}/out', '--tokens_per_microbatch=75', processes=2,
           before=f'FILE = {str(tmp_path / "passes")!r}\n' + COUNT_ROWS)
    assert_same_run(tmp_path / 'out', out, level / 'warm_start')
    count = [{kind: sum(line[0] == kind for line in passes(tmp_path / 'passes', rank))
              for kind in ('old', 'ref', 'update', 'step')} for rank in (0, 1)]
    assert count[0]['old'] + count[1]['old'] < 2 * count[0]['update'], 'as many micro-batches: no test'
    assert count[0]['update'] == count[1]['update'] >= max(count[0]['old'], count[1]['old'])
    assert count[0]['step'] == count[1]['step'] == 6 < count[0]['update']
    rows = [sum(line[1] for line in passes(tmp_path / 'passes', rank) if line[0] == 'old') for rank in (0, 1)]
    assert rows[0] == rows[1] and sum(rows) == sum(
        record['trajectories_trained'] for record in read_log(out)[2:])


@pytest.mark.parametrize('flag, processes', [
    ('--share_prefix=false', 1), ('--gradient_checkpointing', 1), ('--gradient_checkpointing', 2)])
def test_full_sequences_equal_the_shared_prefix(everything, launch, level, tmp_path, flag, processes):
    """The other way through the model gives the same weights, also with checkpointing under DDP (D6); the
    export is unmarked (C7)."""
    flags, out = everything
    launch(*flags, f'--out_dir={tmp_path}', flag, processes=processes)
    assert_same_run(tmp_path, out, level / 'warm_start')
    assert (tmp_path / 'latest' / 'config.json').read_text() == (out / 'latest' / 'config.json').read_text()


@pytest.mark.parametrize('average', ['token', 'seq'])
def test_ranks_without_rows(small, level, launch, tmp_path, average):
    """D2, D3: at most 8 trajectories for 5 updates and two ranks, so that ranks are idle in some; with texts
    beside pictures, so that one rank may see a picture when the other does not (V7)."""
    rows = Dataset.from_parquet(str(level / 'train.parquet')).select(range(4)).to_list()
    for row in rows[::2]:
        row.update(images=[], problem=row['problem'].removeprefix('<image>'))
    features = Dataset.from_parquet(str(level / 'train.parquet')).features
    Dataset.from_list(rows, features=features).to_parquet(str(tmp_path / 'mixed.parquet'))
    flags = [*small, f'--dataset={tmp_path}/mixed.parquet', '--questions_per_step=4',
             '--rollouts_per_question=2', '--tau=2', '--align=1', '--updates_per_step=5', '--beta=0.1',
             f'--average={average}', '--learning_rate=5e-5', '--tokens_per_microbatch=1']
    for processes in (1, 2):
        launch(*flags, f'--out_dir={tmp_path}/{processes}', processes=processes,
               before=f'FILE = {str(tmp_path / f"passes{processes}-")!r}\n' + COUNT_ROWS)
    assert_same_run(tmp_path / '2', tmp_path / '1', level / 'warm_start')
    trained = [record['trajectories_trained'] for record in read_log(tmp_path / '1')[2:]]
    assert all(4 <= count <= 8 for count in trained)
    count = [{kind: sum(line[0] == kind for line in passes(tmp_path / 'passes2-', rank))
              for kind in ('ref', 'update', 'step')} for rank in (0, 1)]
    assert count[0]['update'] == count[1]['update'] and count[0]['step'] == count[1]['step'] == 10
    assert count[0]['ref'] + count[1]['ref'] == sum(trained) < 2 * count[0]['update'], 'none was idle'


def test_any_number_of_questions_fits_any_number_of_ranks(small, launch, level, tmp_path):
    """K2: 5 questions on 3 processes, and 1 question on 2, are the runs of one process."""
    for questions, processes in ((5, 3), (1, 2)):
        flags = [*small, f'--questions_per_step={questions}', '--align=6', '--learning_rate=5e-5']
        outs = [tmp_path / f'{questions}-{ranks}' for ranks in (1, processes)]
        for out, ranks in zip(outs, (1, processes)):
            launch(*flags, f'--out_dir={out}', processes=ranks, before=COIN.replace('% 3', '% 1 + 2'))
        assert_same_run(*outs, level / 'warm_start')


def test_a_real_launch_on_two_processes(everything, tmp_path):
    """The README's command with torchrun: the log and the weights of one process."""
    flags, out = everything
    text = run_train(*flags, f'--out_dir={tmp_path}', processes=2)
    assert distance(tmp_path / 'latest', out / 'latest') < 5e-5
    assert text.count('trajectories a step') == 1 and '/ 2 ranks = 24' in text, 'only rank 0 speaks'
    assert {'rank0.pt', 'rank1.pt'} <= {path.name for path in (tmp_path / 'latest').iterdir()}
    sizes = [(tmp_path / 'latest' / f'rank{rank}.pt').stat().st_size for rank in (0, 1)]
    whole = (out / 'latest' / 'rank0.pt').stat().st_size
    assert 0.8 < sum(sizes) / whole < 1.2 and max(sizes) < 0.8 * whole, 'the optimizer is not sharded'


# ------------------------------------------------------------------------------------------- resume


def died_at(whole, died, step, logged):
    """A copy of a finished run as a crash leaves it: checkpoints up to `step`, log up to `logged`."""
    shutil.copytree(whole, died, symlinks=True)
    for folder in died.glob('step_*'):
        if int(folder.name.removeprefix('step_')) > step:
            shutil.rmtree(folder)
    (died / 'latest').unlink()
    (died / 'latest').symlink_to(f'step_{step:06d}')
    lines = (died / 'log.jsonl').read_text().splitlines(keepends=True)
    kept = [line for line in lines if json.loads(line).get('step', 0) <= logged]
    (died / 'log.jsonl').write_text(''.join(kept))
    return died


@pytest.mark.parametrize('processes', [1, 2])
def test_resume(level, small, launch, tmp_path, processes):
    """C1: a run of five steps that died in its second epoch, with step 3 saved and step 4 logged, goes on
    exactly: questions, rollouts, weights, moments, warm-up, ARS; the log has each step once."""
    data = subset(level, tmp_path / 'data.parquet', 12)
    flags = [*small, f'--dataset={data}', '--beta=0.1', '--max_steps=5', '--save_every=3', '--eval_every=2',
             '--warmup_steps=4', '--learning_rate=2e-4']
    whole = tmp_path / 'whole'
    launch(*flags, f'--out_dir={whole}', processes=processes)
    died = died_at(whole, tmp_path / 'died', step=3, logged=4)
    state = json.loads((died / 'latest' / 'state.json').read_text())
    assert state['ars']['reference'] and len(state['ars']['means']) == 1, 'ARS has nothing to lose'
    launch(*flags, f'--out_dir={died}', '--init_from=resume', processes=processes)
    assert distance(died / 'step_000005', whole / 'step_000005') < 1e-6
    assert distance(whole / 'step_000003', whole / 'step_000005') > 1e-4
    ours, theirs = (json.loads((run / 'step_000005' / 'state.json').read_text()) for run in (died, whole))
    for state in ours, theirs:
        state['settings'] |= {'init_from': '', 'out_dir': ''}
    assert ours == theirs
    ours, theirs = ({record['step']: record for record in without_times(read_log(run))}
                    for run in (died, whole))
    assert ours.keys() == theirs.keys() and theirs[5]['epoch'] == 2
    for step in theirs:
        assert ours[step] == pytest.approx(theirs[step], rel=1e-5, abs=1e-6), step
    assert [record['step'] for record in read_log(died)[1:]] == [0, 1, 2, 3, 4, 5]


# ---------------------------------------------------------------------------------- what is refused


def refusal(launch, *flags, **how):
    """The one line with which a run ends that must not start: no traceback."""
    text = launch(*flags, ok=False, **how)
    errors = [line for line in text.splitlines() if line.startswith('error: ')]
    assert len(errors) == 1 and 'Traceback' not in text, text
    return errors[0], text


@pytest.mark.parametrize('flags, processes, words', [
    (['--learning_rte=1'], 1, ["'learning_rte'", "did you mean 'learning_rate'"]),
    (['--temperature=0.0'], 1, ['temperature = 0.0', 'at least']),
    (['--temperature=-0.1'], 1, ['temperature = -0.1']),
    (['--rollouts_per_question=1'], 1, ['rollouts_per_question = 1', 'at least 2']),
    (['--pruning=mdpa'], 1, ["pruning = 'mdpa'", 'mdap', 'none']),
    (['--max_steps=3', '--epochs=2'], 1, ['max_steps = 3', 'epochs = 2', 'exactly one']),
    (['--max_steps=0', '--epochs=0'], 1, ['max_steps = 0', 'epochs = 0', 'exactly one'])],
    ids=lambda value: ' '.join(value) if isinstance(value, list) and value[0].startswith('-') else None)
def test_settings_are_checked_before_anything_is_loaded(small, launch, tmp_path, flags, processes, words):
    """K1, K2, S5: one line with key, value and what is allowed, before weights are read."""
    message, text = refusal(launch, *small, f'--out_dir={tmp_path}/out', *flags, processes=processes)
    assert all(word in message for word in words), message
    assert 'Loading weights' not in text and not (tmp_path / 'out').exists()


def test_what_is_missing_is_named(small, launch, tmp_path):
    """Data set, model, checkpoint: the message holds the setting and the next action."""
    message, _ = refusal(launch, *small, '--dataset=nosuch')
    assert "dataset = 'nosuch'" in message and 'python data/prepare.py nosuch' in message
    message, _ = refusal(launch, *small, f'--dataset={tmp_path}/nosuch.parquet')
    assert 'nosuch.parquet' in message
    message, _ = refusal(launch, *small, f'--init_from={tmp_path}/nosuch')
    assert f"{tmp_path}/nosuch" in message and 'init_from' in message
    message, _ = refusal(launch, *small, '--init_from=resume', f'--out_dir={tmp_path}/empty')
    assert 'resume' in message and f'{tmp_path}/empty' in message
    message, _ = refusal(launch, f'--init_from={tmp_path}/nosuch', script='eval.py')
    assert 'init_from' in message


def test_resume_wants_as_many_processes(first, whole_run, launch):
    """Optimizer shards belong to their ranks."""
    message, _ = refusal(launch, *whole_run, f'--out_dir={first[0]}', '--init_from=resume', processes=2)
    assert 'world = 2: to resume' in message and 'keep 1 (world: the number of processes)' in message


def test_resume_with_another_number_of_rollouts(first, whole_run, launch):
    """The history of ARS is one of the first number: a line, no traceback."""
    message, _ = refusal(launch, *whole_run, f'--out_dir={first[0]}', '--init_from=resume',
                         '--rollouts_per_question=6')
    assert '6' in message and '4' in message


@pytest.mark.parametrize('row, processes', [(0, 1), (1, 2)])
def test_marks_and_images_must_agree(level, small, launch, tmp_path, row, processes):
    """V2: the faulty question is named and left out at the start, on one rank or two."""
    problems = ['<image>What is the area of the shape?'] * 12
    problems[row] = '<image>What is the area of the <image>shape?'
    data = subset(level, tmp_path / 'data.parquet', 12, problem=problems)
    flags = [*small, f'--dataset={data}', '--max_steps=1', f'--out_dir={tmp_path}/out']
    text = launch(*flags, processes=processes)
    assert f"warning: question 'train-{row}' is left out: " in text
    assert '2 <image> marks and 1 images' in text and '11 questions, ' in text


def test_long_prompts_are_dropped(level, small, launch, tmp_path):
    """A1, V2: pictures counted, dropped with a count and a warning, never cut; an error if few are left."""
    problems = ['<image>What is the area of the shape?'] * 8
    problems[2] = problems[5] = problems[0] + ' What is the area?' * 20
    data = subset(level, tmp_path / 'data.parquet', 8, problem=problems)
    flags = [*small, f'--dataset={data}', f'--out_dir={tmp_path}/out', '--max_steps=1']
    text = launch(*flags, '--max_prompt_tokens=60')
    assert '2 of 8 questions are left out' in text and 'longer than max_prompt_tokens = 60' in text
    assert '6 questions, 1 steps' in text
    message, _ = refusal(launch, *flags, '--max_prompt_tokens=10')
    assert '0 questions' in message and 'raise max_prompt_tokens' in message


def test_temperature_0_is_fine_in_eval(first, launch):
    """S5: greedy evaluation is no division by zero, whichever setting says so."""
    flags = [f'--init_from={first[0]}/latest', '--eval_temperature=0.0', '--eval_questions=3']
    assert 'temperature 0.0' in launch(*flags, script='eval.py')


# --------------------------------------------------------------------------- the parts on their own


def test_deal_example():
    assert mdap.deal([9, 9, 2, 1], [0, 0, 1, 1], 2) == [[0, 1], [2, 3]]
    hands = mdap.deal([8, 7, 6, 5, 4, 3, 2, 1], range(8), 2)
    assert [sum(8 - row for row in hand) for hand in hands] == [18, 18]


@pytest.mark.parametrize('seed', range(40))
def test_deal(seed):
    """D3: every row once, equal numbers where they divide, questions split only where a hand is full."""
    rng = random.Random(seed)
    ranks, groups = rng.choice([1, 2, 3, 4, 8]), rng.randint(1, 12)
    rows = rng.choice([rng.randint(1, 60), ranks * rng.randint(1, 9)])
    owners = sorted(rng.randrange(groups) for _ in range(rows))
    costs = [rng.randint(1, 300) for _ in owners]
    hands = mdap.deal(costs, owners, ranks)
    assert hands == mdap.deal(list(costs), list(owners), ranks) and len(hands) == ranks
    assert sorted(row for hand in hands for row in hand) == list(range(len(owners)))
    assert max(len(hand) for hand in hands) == -(-len(owners) // ranks)
    if len(owners) % ranks == 0:
        assert len({len(hand) for hand in hands}) == 1
    pieces = sum(len({owners[row] for row in hand}) for hand in hands)
    assert pieces <= len(set(owners)) + ranks - 1, 'a question is spread further than the equal numbers ask'


def test_deal_balances():
    """Loads are far nearer to each other than those of a cut in order."""
    def spread(hands, costs):
        loads = [sum(costs[row] for row in hand) for hand in hands]
        return max(loads) / (sum(loads) / len(loads))
    ours, cut = [], []
    for seed in range(50):
        rng = random.Random(seed)
        costs = [rng.randint(20, 400) for _ in range(64)]
        owners = [row // 2 for row in range(64)]
        ours.append(spread(mdap.deal(costs, owners, 4), costs))
        cut.append(spread([range(16 * i, 16 * i + 16) for i in range(4)], costs))
    assert sum(ours) / 50 - 1 < 0.3 * (sum(cut) / 50 - 1)


def test_deal_with_more_ranks_than_rows():
    """D2: the others get nothing; one row each for those that get one."""
    hands = mdap.deal([5, 7, 3], [0, 0, 1], 8)
    assert sorted(map(len, hands)) == [0] * 5 + [1] * 3
    assert mdap.deal([], [], 3) == [[], [], []]


def optimizer_of(weight, lr):
    return make_optimizer([weight], 1, lr=lr, betas=(0.9, 0.999), weight_decay=0.01)


def gradient(step):
    """A gradient that bf16 holds exactly, with a drift, so that the weights travel."""
    generator = torch.Generator().manual_seed(step)
    return (torch.randn(100_000, generator=generator) + 0.5).bfloat16().float()


def test_bf16_weights_move():
    """P1: 10 steps at 1e-6 move the masters of over 99 % of the weights; plain bf16 moves hardly any."""
    start = (torch.randn(100_000, generator=torch.Generator().manual_seed(0)) * 0.02).bfloat16()
    weight, plain = torch.nn.Parameter(start.clone()), torch.nn.Parameter(start.clone())
    ours, theirs = optimizer_of(weight, 1e-6), torch.optim.AdamW([plain], lr=1e-6)
    for step in range(10):
        for parameter, optimizer in (weight, ours), (plain, theirs):
            parameter.grad = gradient(step).bfloat16()
            optimizer.step()
    (master,), state = ours.param_groups[0]['params'], next(iter(ours.state.values()))
    assert master.dtype == state['exp_avg'].dtype == state['exp_avg_sq'].dtype == torch.float32
    assert (master != start.float()).float().mean() > 0.99 and (plain != start).float().mean() < 0.1


def test_bf16_weights_follow_fp32():
    """P1: after 400 steps of 1e-6 the bf16 weights are the fp32 run's, rounded, and many have moved."""
    start = (torch.randn(100_000, generator=torch.Generator().manual_seed(0)) * 0.02).bfloat16()
    half, full = torch.nn.Parameter(start.clone()), torch.nn.Parameter(start.float())
    optimizers = [(half, optimizer_of(half, 1e-6)), (full, optimizer_of(full, 1e-6))]
    for step in range(400):
        for weight, optimizer in optimizers:
            weight.grad = gradient(step).to(weight.dtype)
            optimizer.step()
    assert torch.equal(half.data, full.data.bfloat16())
    assert (half.data != start).float().mean() > 0.9
    for fused, tolerance in ((True, 0), (False, 1e-7)):  # the weights have moved by 1e-4
        reference = torch.nn.Parameter(start.float())
        library = torch.optim.AdamW([reference], lr=1e-6, betas=(0.9, 0.999), weight_decay=0.01, fused=fused)
        for step in range(400):
            reference.grad = gradient(step)
            library.step()
        assert torch.allclose(full, reference, rtol=0, atol=tolerance)


@pytest.mark.parametrize('dtype', [torch.bfloat16, torch.float32])
def test_optimizer_state_keeps_fp32(tmp_path, level, dtype):
    """P1, C1: saved and loaded in the middle, masters and moments stay fp32; the run goes on bit by bit."""
    start = (torch.randn(100_000, generator=torch.Generator().manual_seed(0)) * 0.02).to(dtype)
    whole, (model, processor) = torch.nn.Parameter(start.clone()), load(level / 'warm_start')
    optimizer = optimizer_of(whole, 1e-5)
    for step in range(6):
        whole.grad = gradient(step).to(dtype)
        optimizer.step()
        if step == 2:
            assert save(tmp_path / 'saved', model, processor, {}, optimizer) == ''
            weight = whole.detach().clone()
    resumed = torch.nn.Parameter(weight)
    optimizer, before = optimizer_of(resumed, 1e-5), optimizer
    load_optimizer(tmp_path / 'saved', optimizer)
    for step in range(3, 6):
        resumed.grad = gradient(step).to(dtype)
        optimizer.step()
    assert torch.equal(whole, resumed)
    states, masters = zip(*[(next(iter(x.state.values())), x.param_groups[0]['params'][0])
                            for x in (optimizer, before)])
    assert states[0]['step'] == states[1]['step'] == 6 and torch.equal(*masters)
    for key in ('exp_avg', 'exp_avg_sq'):
        assert states[0][key].dtype == torch.float32 and torch.equal(states[0][key], states[1][key]), key


def test_bf16_on_two_processes(small, launch, tmp_path):
    """D1, P1: gradients in bf16 are reduced over ranks in every update, not only in the first one. (Weights
    that are swapped for their masters inside a step lose DDP's hooks; equal weights would not show it.)"""
    hook = f"""
import os, torch
clip = torch.nn.utils.clip_grad_norm_
def told(*args):
    norm = clip(*args)
    with open({str(tmp_path / 'norms')!r} + os.environ['RANK'], 'a') as file:
        print(norm.item(), file=file)
    return norm
torch.nn.utils.clip_grad_norm_ = told
"""
    launch(*small, '--dtype=bfloat16', '--max_steps=3', f'--out_dir={tmp_path}/out', before=COIN + hook,
           processes=2)
    norms = [(tmp_path / f'norms{rank}').read_text().split() for rank in (0, 1)]
    assert len(norms[0]) >= 4 and norms[0] == norms[1] and min(map(float, norms[0])) > 0
