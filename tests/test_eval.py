"""eval.py: each question once, the same numbers whatever the ranks and interruptions, honest intervals."""
import itertools
import json
import math
import random
from statistics import fmean

import pytest
import torch
from datasets import Dataset
from helpers import subset

import eval as evaluation
from configurator import read_settings
from reward import extract_boxed

@pytest.fixture(scope='module')
def flags(level):
    """Seven questions, four answers each, of the hardly trained toy."""
    return [f'--init_from={level}/warm_start', f'--dataset={level}', '--eval_questions=7', '--samples=4',
            '--eval_temperature=1', '--max_response_tokens=24']


def read(folder):
    (path,) = folder.glob('eval_*.json')
    return json.loads(path.read_text())


@pytest.fixture(scope='module')
def whole(flags, level, launch, tmp_path_factory):
    """An undisturbed evaluation -> its folder, what it printed."""
    folder = tmp_path_factory.mktemp('whole')
    return folder, launch(*flags, f'--output={folder}', script='eval.py')


def answers_of(folder):
    (path,) = folder.glob('*.jsonl')
    return path, [json.loads(line) for line in path.read_text().splitlines()]


def test_every_question_counts_once(whole, flags, launch, tmp_path):
    """E1: two and three processes give the records of one, also at an odd number of questions."""
    first = read(whole[0])
    for processes in (2, 3):
        launch(*flags, f'--output={tmp_path}/{processes}', script='eval.py', processes=processes)
        other = read(tmp_path / str(processes))
        assert other['answers'] == first['answers'] and other['scores'] == first['scores']
    (records,) = first['answers'].values()
    assert [(r['index'], r['sample']) for r in records] == list(itertools.product(range(7), range(4)))
    assert len({r['id'] for r in records}) == 7
    (scores,) = first['scores'].values()
    assert scores['questions'] == 7 and scores['answers'] == 28 and {'pass@2', 'pass@4'} <= set(scores)
    assert scores['accuracy'] == scores['mean@4'] == pytest.approx(scores['pass@1'])
    assert 'pass@8' not in scores
    assert scores['truncated answers'] == sum(r['truncated'] for r in records) == 28 * scores['truncated']
    assert scores['unparsed answers'] == sum(r['verdict'] == 'unparsed' for r in records)
    assert scores['95% from'] <= scores['accuracy'] <= scores['95% to']


def test_what_is_written(whole, level):
    """E2: one line an answer, as other tools read them; one JSON with settings, versions and all answers."""
    report, (path, lines) = read(whole[0]), answers_of(whole[0])
    (records,) = report['answers'].values()
    assert records == sorted(lines, key=lambda r: (r['index'], r['sample']))
    assert Dataset.from_json(str(path)).num_rows == 28
    questions = Dataset.from_parquet(str(level / 'test.parquet'))
    for record in records:
        question = questions[record['index']]
        assert (record['id'], record['prompt'], record['truth']) == (
            question['id'], question['problem'], question['answer'])
        assert record['extracted'] == extract_boxed(record['response'])
        assert record['verdict'] == ('right' if record['accuracy'] else
                                     'unparsed' if record['unparsed'] else 'wrong')
        assert record['extracted'] is not None or record['verdict'] == 'unparsed'
    assert report['settings']['samples'] == 4 and report['settings']['torch version'] == torch.__version__
    (scores,) = report['scores'].values()
    rows = [line.rpartition(' ') for line in whole[1][whole[1].index(' split, '):].splitlines()[2:]]
    table = {name.strip(): float(value) for name, _, value in rows}
    assert table == pytest.approx(scores, abs=1e-3) and table['questions'] == 7


COUNT = """
import rollout, sys
real = rollout.generate
def generate(policy, processor, prompts, *rest):
    print('prompts', len(prompts))
    return real(policy, processor, prompts, *rest)
rollout.generate = generate
"""


@pytest.mark.parametrize('kept, torn, left', [
    (28, '', 0), (12, '', 4), (10, '', 5), (8, '{"id": "test-2", "res', 5), (12, '{"a": 1}', 4), (0, '', 7)])
def test_goes_on_after_an_interruption(whole, flags, launch, tmp_path, kept, torn, left):
    """Whole questions stay, half of one and half a line are done again; the numbers are those of one go."""
    path, _ = answers_of(whole[0])
    lines = path.read_text().splitlines(True)
    (tmp_path / path.name).write_text(''.join(lines[:kept]) + torn)
    text = launch(*flags, f'--output={tmp_path}', script='eval.py', before=COUNT)
    assert ('prompts' in text) == (left > 0) and (not left or f'prompts {left}\n' in text)
    assert read(tmp_path)['answers'] == read(whole[0])['answers']
    assert (tmp_path / path.name).read_text() == path.read_text()
    assert text[text.index(' split, '):] == whole[1][whole[1].index(' split, '):]


@pytest.mark.parametrize('flag', ['--eval_temperature=0.5', '--seed=2', '--eval_questions=6'])
def test_another_evaluation_is_not_continued(whole, flags, launch, tmp_path, flag):
    """Other settings into the same folder: another evaluation beside the first, of which nothing is lost."""
    for path in whole[0].iterdir():
        (tmp_path / path.name).write_text(path.read_text())
    before = {path.name: path.read_text() for path in tmp_path.iterdir()}
    text = launch(*flags, f'--output={tmp_path}', flag, script='eval.py', before=COUNT)
    assert 'prompts' in text
    after = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert len(before) == 2 and len(after) == 4 and before.items() <= after.items()


def test_settings_that_change_no_answer(whole, flags, launch):
    """The same evaluation on another budget of memory goes on where it was: at its end."""
    flags = [*flags, f'--output={whole[0]}', '--max_tokens_in_flight=500']
    text = launch(*flags, script='eval.py', before=COUNT)
    assert 'prompts' not in text and len(list(whole[0].iterdir())) == 2


def test_several_benchmarks(level, flags, launch, tmp_path):
    """One call, one table: each set by itself and their mean; the first is there when the second ends."""
    for name, count in (('a', 3), ('b', 5)):
        subset(level, tmp_path / f'{name}.parquet', count)
    sets = f'{tmp_path}/a.parquet,{tmp_path}/b.parquet'
    text = launch(*flags, f'--benchmarks={sets}', f'--output={tmp_path}/out', script='eval.py')
    scores = read(tmp_path / 'out')['scores']
    first, second, mean = (scores[name] for name in (*sets.split(','), 'mean'))
    assert (first['questions'], second['questions']) == (3, 5)
    assert mean['accuracy'] == pytest.approx((first['accuracy'] + second['accuracy']) / 2)
    assert 'pass@4' in mean and 'questions' not in mean and 'unparsed answers' not in mean
    assert 'mean' in text and len(list((tmp_path / 'out').glob('*.jsonl'))) == 2
    alone = tmp_path / 'alone'
    launch(*flags, f'--benchmarks={tmp_path}/b.parquet', f'--output={alone}', script='eval.py')
    assert read(alone)['scores'] == {f'{tmp_path}/b.parquet': second}


def test_plain_rows_and_rewards(level, flags, launch, tmp_path):
    """A jsonl with numbers as answers, ids and parts; a reward of numpy's numbers: no reason to end, least of
    all when everything has been answered."""
    rows = [{'problem': 'What is the area?', 'answer': 12, 'id': i, 'part': i % 2} for i in range(3)]
    (tmp_path / 'mine.jsonl').write_text(''.join(json.dumps(row) + '\n' for row in rows))
    (tmp_path / 'mine.py').write_text(
        'import numpy\n\ndef f(response, question):\n'
        '    return {"reward": numpy.float32(0.5), "even": numpy.bool_(1)}')
    launch(*flags, f'--benchmarks={tmp_path}/mine.jsonl', f'--output={tmp_path}/out', script='eval.py')
    (scores,) = read(tmp_path / 'out')['scores'].values()
    assert scores['questions'] == 3 and {'1', 'accuracy'} <= set(scores)
    flags = [*flags, f'--reward={tmp_path}/mine.py:f', f'--output={tmp_path}/own']
    launch(*flags, f'--benchmarks={tmp_path}/mine.jsonl', script='eval.py')
    (scores,) = read(tmp_path / 'own')['scores'].values()
    assert scores['reward'] == 0.5 and scores['even'] == scores['accuracy'] == 1


@pytest.mark.parametrize('change', ['data', 'reward'])
def test_stale_answers_are_not_continued(flags, launch, tmp_path, change):
    """A data set or a reward that was changed since: the same names, but another evaluation."""
    data, reward = tmp_path / 'data.jsonl', tmp_path / 'mine.py'
    data.write_text('{"problem": "What is the area?", "answer": "5"}\n' * 3)
    reward.write_text('def f(response, question):\n    return 1\n')
    flags = [*flags, f'--benchmarks={data}', f'--reward={reward}:f', f'--output={tmp_path}/out']
    launch(*flags, script='eval.py')
    assert 'prompts' not in launch(*flags, script='eval.py', before=COUNT)
    if change == 'data':
        data.write_text('{"problem": "What is the perimeter?", "answer": "5"}\n' * 2)
    else:
        reward.write_text('def f(response, question):\n    return 0\n')
    assert 'prompts' in launch(*flags, script='eval.py', before=COUNT)


def test_a_missing_benchmark_is_named(flags, launch):
    text = launch(*flags, '--benchmarks=nosuch', script='eval.py', ok=False)
    assert 'data/prepare.py nosuch' in text


@pytest.mark.parametrize('n', range(1, 7))
def test_pass_at_k(n):
    """The share of all choices of k among n samples that hold a right one."""
    for c, k in itertools.product(range(n + 1), range(1, n + 1)):
        choices = list(itertools.combinations(range(n), k))
        expected = sum(any(i < c for i in choice) for choice in choices) / len(choices)
        assert evaluation.pass_at_k(n, c, k) == pytest.approx(expected)


@pytest.mark.parametrize('k', [0, -1, 5])
def test_pass_at_bad_k(k):
    with pytest.raises(ValueError, match=f'k = {k}.*n = 4'):
        evaluation.pass_at_k(4, 2, k)


def records_of(accuracies, parts=None, ids=None):
    return [{'index': i, 'sample': sample, 'accuracy': accuracy, 'part': parts[i] if parts else '',
             'id': ids[i] if ids else str(i)}
            for i, answers in enumerate(accuracies) for sample, accuracy in enumerate(answers)]


def test_summary():
    """Means over answers; pass@k only for k <= samples; numbers of rows are no scores."""
    records = records_of([[1.0, 0.0], [0.0, 0.0]])
    for record, style, cut in zip(records, (0.5, 0.5, 0, 0.5), (False, True, False, False)):
        record |= {'format': style, 'truncated': cut, 'response': 'x', 'extracted': None}
    assert evaluation.summary(records) == {
        'accuracy': 0.25, 'format': 0.375, 'truncated': 0.25, 'mean@2': 0.25, 'pass@1': 0.25, 'pass@2': 0.5}
    assert evaluation.summary(records[:1]) == {'accuracy': 1, 'format': 0.5, 'truncated': 0}


def test_interval():
    """As wide as theory says: for n questions with one answer each, 1.96 sqrt(p (1 - p) / n) to either side;
    answers to one question are no independent draws."""
    rng = random.Random(0)
    single = [[float(rng.random() < 0.3)] for _ in range(400)]
    p = fmean(values[0] for values in single)
    low, high = evaluation.interval(records_of(single), draws=4000).values()
    width = 1.96 * math.sqrt(p * (1 - p) / 400)
    assert p - low == pytest.approx(width, rel=0.15) and high - p == pytest.approx(width, rel=0.15)
    copied = evaluation.interval(records_of([values * 16 for values in single]), draws=4000)
    assert tuple(copied.values()) == pytest.approx((low, high))
    assert evaluation.interval(records_of(single)) == evaluation.interval(records_of(single))
    low2, high2 = evaluation.interval(records_of(single), records_of(single[:200] * 2), draws=4000).values()
    assert (high2 - low2) / (high - low) == pytest.approx(1 / math.sqrt(2), rel=0.15)


def test_interval_of_sure_things():
    assert tuple(evaluation.interval(records_of([[1.0]] * 9)).values()) == (1, 1)


def test_wemath_scores():
    """(groups - IG / 2 - RM - IK) / groups, as published: strict wants all steps of a mastered problem right,
    loose one of them."""
    groups = {  # steps, whole -> what it counts strictly, loosely
        '2steps_1': ([1, 1], 1, 1, 1), '2steps_2': ([1, 0], 1, 0, 1), '2steps_3': ([0, 0], 1, 0, 0),
        '3steps_4': ([1, 1, 1], 0, 0.5, 0.5), '3steps_5': ([1, 1, 0], 0, 0, 0),
        '3steps_6': ([0, 0, 0], 0, 0, 0), '3steps_7': ([0, 1, 0], 1, 0, 1)}
    accuracies, parts, ids = [], [], []
    for name, (steps, whole, _, _) in groups.items():
        kind = name.partition('_')[0]
        for step, right in [*enumerate(steps, 1), ('multi', whole)]:
            parts.append(f'{kind}_{step}')
            ids.append(f'wemath-test-{name} {parts[-1]}')
            accuracies.append([float(right)])
    scores = evaluation.breakdown(records_of(accuracies, parts, ids))
    assert scores['strict'] == pytest.approx(fmean(group[2] for group in groups.values()))
    assert scores['loose'] == pytest.approx(fmean(group[3] for group in groups.values()))
    assert scores['2steps_multi'] == 1 and scores['3steps_multi'] == pytest.approx(1 / 4)
    twice = records_of([values * 2 for values in accuracies], parts, ids)
    assert evaluation.breakdown(twice)['strict'] == scores['strict']
    cut = evaluation.breakdown(records_of(accuracies[:-1], parts, ids))  # a problem without its last question
    assert cut['loose'] == pytest.approx(fmean([1, 1, 0, 0.5, 0, 0]))


def test_breakdown():
    parts = ['Text Lite', 'Text Lite', 'Vision Only']
    scores = evaluation.breakdown(records_of([[1.0], [0.0], [1.0]], parts))
    assert scores == {'Text Lite': 0.5, 'Vision Only': 1}
    assert evaluation.breakdown(records_of([[1.0]])) == {}


def test_settings_have_comments():
    settings = read_settings(evaluation.__file__)
    assert {'split', 'benchmarks', 'samples', 'output'} <= set(settings)
    assert all(comment for _, comment in settings.values())
