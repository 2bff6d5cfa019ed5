"""
ars.py against reference values (tests/golden), the sentences of Eq. 10-14, and what GRESO and DAPO published.
"""
import json
from pathlib import Path

import pytest
import torch

import ars

GOLDEN = json.loads((Path(__file__).parent / 'golden' / 'ars.json').read_text())


@pytest.mark.parametrize('case', [pytest.param(case, id=case['name']) for case in GOLDEN['cases']])
def test_matches_reference_values(case):
    inputs, expected = case['inputs'], case['expected']
    rollouts = ars.AdaptiveRollouts(inputs['G1'], inputs['total_steps'])
    numbers = [rollouts.rollouts]
    step = 0
    for epoch, boundary in zip(inputs['retained_counts'], expected['boundaries'], strict=True):
        for counts in epoch:
            rollouts.record(counts)
            step += 1
        assert step == boundary['step']
        assert rollouts.end_epoch(step) == rollouts.rollouts == boundary['n_next']
        assert rollouts.reference == pytest.approx(boundary['Gref'], abs=1e-9)
        numbers.append(rollouts.rollouts)
    assert numbers == expected['n_per_epoch']


def test_docstring_example():
    rollouts = ars.AdaptiveRollouts(8, 10)
    for step in range(1, 11):
        rollouts.record([8, 4, 4, 4])
        if step == 5:
            assert rollouts.end_epoch(step) == 8
    assert rollouts.end_epoch(10) == 6


def test_rounding_is_half_to_even():
    """alpha 1 from the second epoch on, so G' is the mean; the first epoch makes G_ref 8."""
    for mean, wanted in [(7.5, 8), (6.5, 6), (5.5, 6), (4.5, 4), (3.5, 4), (2.5, 2)]:
        rollouts = ars.AdaptiveRollouts(8, 2)
        rollouts.record([8, 8])
        assert rollouts.end_epoch(1) == 8
        rollouts.record([int(mean), int(mean) + 1])
        assert rollouts.end_epoch(2) == wanted


def test_never_above_initial_and_never_below_two():
    rollouts = ars.AdaptiveRollouts(8, 4)
    for step, (counts, wanted) in enumerate([([4, 4], 8), ([8, 8], 8), ([1, 1], 5), ([8, 8], 8)], start=1):
        rollouts.record(counts)
        assert rollouts.end_epoch(step) == wanted            # one poor epoch does not bind the next
    rollouts = ars.AdaptiveRollouts(3, 2)
    rollouts.record([3])
    rollouts.end_epoch(1)
    rollouts.record([1])
    assert rollouts.end_epoch(2) == 2


def test_each_epoch_starts_with_empty_buffers():
    rollouts = ars.AdaptiveRollouts(8, 2)
    rollouts.record([8, 8])
    rollouts.end_epoch(1)
    for _ in range(3):
        rollouts.record([5, 5])
    assert rollouts.means == [5, 5, 5] and rollouts.maxes == [5, 5, 5]
    assert rollouts.end_epoch(2) == 5


def test_empty_epoch_changes_nothing():
    """An epoch without a training step (everything filtered) says nothing about diversity."""
    rollouts = ars.AdaptiveRollouts(8, 10)
    assert rollouts.end_epoch(0) == 8 and rollouts.reference is None
    rollouts.record([])                                      # a step that trained on nothing
    assert rollouts.end_epoch(1) == 8 and rollouts.reference is None
    rollouts.record([8])
    rollouts.end_epoch(5)
    rollouts.record([5])
    assert rollouts.end_epoch(10) == 5
    assert rollouts.end_epoch(10) == 5                       # called twice at one boundary


def test_counts_may_be_a_tensor_and_are_not_written():
    counts = torch.tensor([8, 4])
    rollouts = ars.AdaptiveRollouts(8, 10)
    rollouts.record(counts)
    assert (rollouts.means, rollouts.maxes) == ([6.0], [8])
    assert counts.tolist() == [8, 4]


def test_state_survives_json_in_the_middle_of_an_epoch():
    def steps(rollouts, first, last):
        for step in range(first, last + 1):
            rollouts.record([8 - step % 3, 9 - step])
            if step % 3 == 0:
                rollouts.end_epoch(step)
        return rollouts

    for cut in range(9):
        one = steps(ars.AdaptiveRollouts(8, 9), 1, cut)
        written = json.dumps(one.state_dict())
        state = json.loads(written)
        two = ars.AdaptiveRollouts(8, 9)
        two.load_state_dict(state)
        steps(one, cut + 1, 9)
        assert steps(two, cut + 1, 9).state_dict() == one.state_dict()
        assert json.dumps(state) == written
        assert two.rollouts == steps(ars.AdaptiveRollouts(8, 9), 1, 9).rollouts


def test_state_is_a_copy():
    rollouts = ars.AdaptiveRollouts(8, 9)
    rollouts.record([4])
    state = rollouts.state_dict()
    rollouts.record([5])
    assert state['means'] == [4]
    other = ars.AdaptiveRollouts(8, 9)
    other.load_state_dict(state)
    other.record([6])
    assert state['means'] == [4]


# GRESO and dynamic sampling ---------------------------------------------------------------------------------

GRESO = json.loads((Path(__file__).parent / 'golden' / 'greso.json').read_text())['cases']
DAPO = json.loads((Path(__file__).parent / 'golden' / 'dapo.json').read_text())['cases']


def only(cases, kind):
    return [pytest.param(case['inputs'], case['expected'], id=case['name'])
            for case in cases if case['kind'] == kind]


@pytest.mark.parametrize('inputs, expected', only(GRESO, 'filter_prob'))
def test_skip_probability_matches_reference_values(inputs, expected):
    greso = ars.PromptFilter()
    greso.rates = {'easy': inputs['p_easy'], 'hard': inputs['p_hard']}
    for rewards in inputs['reward_groups']:
        greso.observe('q', rewards)
    assert greso.skip_probability('q') == pytest.approx(expected['skip_prob_code'], abs=1e-9)
    assert greso.skip_probability('another') == 0
    z = greso.streaks.get('q', 0)
    assert (max(z, 0), max(-z, 0)) == (expected['z_easy'], expected['z_hard'])


@pytest.mark.parametrize('inputs, expected', only(GRESO, 'adapt'))
def test_rates_match_reference_values(inputs, expected):
    """Shares are pooled over the rounds of a step; nothing moves in the first epoch."""
    greso = ars.PromptFilter(inputs['target_zero_variance'])
    greso.rates = {'easy': inputs['p_easy'], 'hard': inputs['p_hard']}
    assert greso.targets == pytest.approx({'easy': expected['target_easy'], 'hard': expected['target_hard']})
    for step, after in zip(inputs['steps'], expected['after_each_step'], strict=True):
        for number, sizes in enumerate(step['rounds']):
            mixed = sizes['n_prompts'] - sizes['n_easy'] - sizes['n_hard']
            groups = [[1.0] * 8] * sizes['n_easy'] + [[0.1] * 8] * sizes['n_hard'] + [[1.0, 0.1] * 4] * mixed
            for i, rewards in enumerate(groups):
                greso.observe((number, i), rewards)
        greso.end_step(step['epoch'])
        assert greso.rates == pytest.approx({'easy': after['p_easy'], 'hard': after['p_hard']}, abs=1e-9)


def test_a_step_without_questions_moves_nothing():
    greso = ars.PromptFilter()
    greso.end_step()
    assert greso.rates == {'easy': 0.5, 'hard': 0.5}


def test_shares_count_what_is_all_wrong():
    """The released ratio of hard questions misses those whose answers earn nothing at all: ours does not."""
    case, = (case for case in GRESO if case['name'] == 'metrics_0')
    greso = ars.PromptFilter()
    for i, rewards in enumerate(case['inputs']['reward_groups']):
        greso.observe(i, rewards)
    assert greso.counts == {'easy': 0, 'hard': 6, 'all': 8} and case['expected']['hard_ratio_code'] * 8 == 1


def test_sixteen_rollouts_are_judged_by_their_extremes():
    """One right answer of 16 has a mean of 0.06, one wrong of 64 one of 0.98: neither is all of a kind."""
    greso = ars.PromptFilter()
    greso.observe('a', [1.0] + [0.0] * 15)
    greso.observe('b', [0.0] + [1.0] * 63)
    assert greso.skip_probability('a') == greso.skip_probability('b') == 0


def test_a_streak_ends_and_turns():
    greso = ars.PromptFilter()
    for rewards, z in (([1, 1], 1), ([1, 1], 2), ([0, 0], -1), ([0, 0], -2), ([0, 1], 0), ([1, 1], 1)):
        greso.observe(7, rewards)
        assert greso.streaks['7'] == z
    for _ in range(50):
        greso.observe(7, [1, 1])
    assert greso.skip_probability(7) == pytest.approx(0.99)                 # never for ever


def test_filter_state_survives_json():
    """Resume: ids may be numbers, and JSON has only strings for keys."""
    one, two = ars.PromptFilter(), ars.PromptFilter()
    for i, rewards in enumerate(([1, 1], [0, 0], [0, 1])):
        one.observe(i, rewards)
    one.end_step(1)
    one.observe(0, [1, 1])
    two.load_state_dict(json.loads(json.dumps(one.state_dict())))
    for i in range(4):
        assert one.skip_probability(i) == two.skip_probability(i)
    two.observe(0, [1, 1])
    assert one.skip_probability(0) != two.skip_probability(0) and one.state_dict() != two.state_dict()


@pytest.mark.parametrize('inputs, expected', only(GRESO, 'adaptive_batch'))
def test_refill_size_matches_reference_values(inputs, expected):
    missing = (inputs['train_prompts'] - inputs['kept_prompts']) * inputs['rollout_n']
    got = ars.refill_size(missing, inputs['zero_variance_ratio'], inputs['rollout_n'],
                          inputs['default_sampling_batch'], inputs['min_batch'])
    assert got == expected['sampling_batch']


def test_refill_size_edges():
    assert ars.refill_size(800, 1.0, 8, 384) == 384                         # no division by zero
    assert ars.refill_size(8, 0.0, 8, 32) == 32                             # the minimum is at most a batch
    assert ars.refill_size(448, 0.5, 8, 384) == 140


@pytest.mark.parametrize('inputs, expected', only(DAPO, 'group_filter'))
def test_group_filter_matches_reference_values(inputs, expected):
    got = [i for i, scores in enumerate(inputs['scores']) if ars.informative(scores)]
    assert got == expected['easyr1_kept']


@pytest.mark.parametrize('inputs, expected', only(DAPO, 'group_filter'))
def test_group_filter_on_accuracy(inputs, expected):
    """On accuracies, which are 0 or 1, the window keeps exactly the groups with a spread; on total rewards,
    as the authors' scripts have it, it keeps all-wrong ones and drops mostly-right ones."""
    right = [[float(score >= 1) for score in scores] for scores in inputs['scores']]
    got = [i for i, accuracies in enumerate(right) if ars.informative(accuracies)]
    assert got == [i for i, accuracies in enumerate(right) if len(set(accuracies)) > 1]
