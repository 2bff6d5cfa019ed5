"""bench/: the comparisons run from their commands, on the hardly trained toy."""
import json

import pytest
from helpers import run_train


@pytest.fixture(scope='module')
def shown(level):
    """bench/speed.py on a few questions -> the rows of its table, one number a method."""
    text = run_train('toy', f'--init_from={level}/warm_start', f'--dataset={level}', '--questions_per_step=4',
                     '--rollouts_per_question=4', '--max_response_tokens=24', '--max_steps=3',
                     script='bench/speed.py')
    lines = text[text.rindex('FastRL\n'):].splitlines()[1:]
    return {line[:40].strip(): [float(word) for word in line[40:].split()] for line in lines if line.strip()}


def test_speed_table(shown):
    """Four methods; the ratio of a method to itself is 1; FastRL trains on fewer trajectories."""
    assert all(len(row) == 4 for row in shown.values())
    sampled, trained = shown['rollout/length'], shown['trajectories_trained']
    assert trained[0] == trained[1] == trained[2] > trained[3] > 0 and min(sampled) > 1
    assert shown['time/old'][2:] == [0, 0] and min(shown['time/old'][:2]) >= 0
    own = [name for name in shown if name.startswith('time/step / ')]
    assert [shown[name][index] for name, index in zip(own, (2, 3))] == [1, 1] and len(own) == 2


def test_plot(tmp_path):
    pytest.importorskip('matplotlib')
    run = tmp_path / 'run'
    run.mkdir()
    records = [{'config': {}}, {'step': 0, 'eval/accuracy': 0.1}] + [
        {'step': step, 'reward/accuracy': 0.1 * step, 'trajectories_sampled': 8, 'trajectories_trained': 3}
        for step in range(1, 6)]
    (run / 'log.jsonl').write_text(''.join(json.dumps(record) + '\n' for record in records))
    run_train(run, f'--to={tmp_path}/curves.png', script='bench/plot.py')
    assert (tmp_path / 'curves.png').stat().st_size > 10_000
