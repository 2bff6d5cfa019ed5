"""bench/: the comparisons run from their commands, on the hardly trained toy."""
import json

import pytest
from helpers import read_log, run_train

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
    """Two seeds of one method, one of another, over steps and over minutes."""
    pytest.importorskip('seaborn')
    for name in 'a_seed=1', 'a_seed=2', 'b_seed=1':
        records = [{'config': {}}, {'step': 0, 'eval/accuracy': 0.1}] + [
            {'step': step, 'eval/accuracy': 0.1 * step, 'trajectories_trained': 3, 'time/step': 1.5}
            for step in range(1, 6)]
        (tmp_path / name).mkdir()
        (tmp_path / name / 'log.jsonl').write_text(''.join(json.dumps(record) + '\n' for record in records))
    for x in 'step', 'minutes':
        runs = tmp_path.glob('*_seed=?')
        run_train(*runs, f'--to={tmp_path}/{x}.png', f'--x={x}', script='bench/plot.py')
        assert (tmp_path / f'{x}.png').stat().st_size > 10_000


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
