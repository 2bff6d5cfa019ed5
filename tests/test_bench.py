"""bench/: the comparisons run from their commands, on the hardly trained toy."""
import json

import pytest
import torch
from helpers import ROOT, read_log, run_train

import losses
import rollout
from model import Policy, load

@pytest.fixture(scope='module')
def shown(level):
    """bench/speed.py on a few questions -> the rows of its table, one number a method, of the library's own
    sampling but seconds and their ratio."""
    text = run_train('toy', f'--init_from={level}/warm_start', f'--dataset={level}', '--questions_per_step=4',
                     '--rollouts_per_question=4', '--max_response_tokens=24', '--max_steps=3',
                     script='bench/speed.py')
    lines = text[text.rindex("the library's\n"):].splitlines()[1:]
    return {line[:40].strip(): [float(word) for word in line[40:].split()] for line in lines if line.strip()}


def test_speed_table(shown):
    """Four methods; the ratio of a method to itself is 1; FastRL trains on fewer trajectories."""
    assert all(len(row) == 4 + name.startswith('time/generate') for name, row in shown.items())
    assert shown['time/generate'][4] > 0
    sampled, trained = shown['rollout/length'], shown['trajectories_trained']
    assert trained[0] == trained[1] == trained[2] > trained[3] > 0 and min(sampled) > 1
    assert shown['time/old'][2:] == [0, 0] and min(shown['time/old'][:2]) >= 0
    own = [name for name in shown if name.startswith('time/step / ')]
    assert [shown[name][index] for name, index in zip(own, (2, 3))] == [1, 1] and len(own) == 2


def test_plot(tmp_path):
    """Two seeds of one method, one of another, over steps, over minutes and over a setting."""
    pytest.importorskip('seaborn')
    for name, tau in ('a_seed=1', 0.2), ('a_seed=2', 0.2), ('b_seed=1', 0.8):
        records = [{'config': {'tau': tau}}, {'step': 0, 'eval/accuracy': 0.1}] + [
            {'step': step, 'eval/accuracy': 0.1 * step, 'trajectories_trained': 3, 'time/step': 1.5}
            for step in range(1, 6)]
        (tmp_path / name).mkdir()
        (tmp_path / name / 'log.jsonl').write_text(''.join(json.dumps(record) + '\n' for record in records))
    for x in 'step', 'minutes', 'tau':
        runs = tmp_path.glob('*_seed=?')
        run_train(*runs, f'--to={tmp_path}/{x}.png', f'--x={x}', script='bench/plot.py')
        assert (tmp_path / f'{x}.png').stat().st_size > 10_000


def test_correlation(level, tmp_path):
    """Figure 5: all pairs and those of different answers are printed, and a figure comes out."""
    pytest.importorskip('seaborn')
    text = run_train(f'--init_from={level}/warm_start', f'--dataset={level}', '--questions_per_step=8',
                     tmp_path / 'figure.png', script='bench/correlation.py')
    every, _, *lines = text[text.rindex('latest\n') + 7:].splitlines()
    assert (tmp_path / 'figure.png').stat().st_size > 10_000
    other, rows = lines[3], {line.split()[0]: line.split()[1:] for line in lines[:3] + lines[5:]}
    assert int(every.split()[0]) >= int(other.split()[0]) > 0, 'some of all pairs are of different answers'
    assert set(rows) == {'1-grams', '2-grams', '3-grams'}
    assert all(-1 <= float(number) <= 1 for pair in rows.values() for number in pair)


def test_gradients_of_pairs(level, monkeypatch):
    """The direction is that in which losses.policy_loss falls, the policy itself being the old one; so it is
    opposite for the opposite advantage, whatever its size, and another one for other tokens."""
    pytest.importorskip('seaborn')
    monkeypatch.syspath_prepend(ROOT / 'bench')
    import correlation
    model, processor = load(level / 'warm_start')
    row = rollout.load_questions(level / 'train.parquet', 'train')[0]
    prompt = rollout.encode(row, processor, {'system_prompt': '', 'examples': [], 'prompt_suffix': ''})
    names = {'policy': Policy(model), 'sampling': rollout, 'device': 'cpu', 'prompts': {0: prompt}}
    answers = [rollout.Trajectory(0, ids, [], 0, advantage=A)
               for ids, A in (([9, 8, 2], 1.0), ([9, 8, 2], -0.5), ([11, 12, 13, 2], 1.0))]
    up, down, other = (correlation.gradient(t, names) for t in answers)
    assert (up @ down).item() == pytest.approx(-1, abs=1e-4) and abs(up @ other) < 0.99
    for t, direction in zip(answers, (up, down, other)):
        inputs = rollout.pack([t], names['prompts'], 'cpu')
        logps, _ = names['policy'](*inputs)
        loss, _ = losses.policy_loss(
            logps, logps.detach(), torch.tensor([t.advantage]), inputs[-1], clip_low=0.2, clip_high=0.3)
        pieces = torch.autograd.grad(losses.average(loss, inputs[-1]), [*model.parameters()])
        whole = torch.cat([piece.flatten() for piece in pieces])
        assert (whole @ direction / whole.norm()).item() == pytest.approx(-1, abs=1e-4)


def test_ablation_table(tmp_path):
    """One seed and five steps, as the README says; a second call runs nothing anew and prints the same."""
    command = ['table8', '--seeds=1', '--steps=5', '--jobs=2', f'--out={tmp_path}']
    text = run_train(*command, script='bench/ablate.py')
    written = {file: file.stat().st_mtime for file in tmp_path.rglob('*')}
    assert run_train(*command, script='bench/ablate.py') == text
    assert written == {file: file.stat().st_mtime for file in tmp_path.rglob('*')}
    title, _, _, *lines = text.strip().splitlines()
    assert title == 'table8: seconds of each stage of a step; 1 seeds'
    (grpo, fastrl), runs = (line.split() for line in lines), sorted(tmp_path.glob('toy/*'))
    assert (grpo[0], fastrl[0], len(runs)) == ('GRPO', 'FastRL', 2)
    log = [record for record in read_log(runs[1]) if 'time/step' in record]  # ..._old_logps=recompute_...
    assert len(log) == 5 and runs[1].name.startswith('grpo_old_logps=recompute_max_steps=5_seed=1')
    assert float(grpo[1]) == pytest.approx(sum(record['time/step'] for record in log) / 5, abs=1e-3)
    assert min(map(float, grpo[1:6])) > 0 < min(map(float, fastrl[1:6]))
