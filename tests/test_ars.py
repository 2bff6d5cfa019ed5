"""
ars.py against reference values (tests/golden) and the sentences of Eq. 10-14.
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


def test_wrong_arguments_say_what_is_allowed():
    """L8: with fewer than two rollouts no group has an advantage."""
    for initial in (1, 0, -3):
        with pytest.raises(ValueError, match=f'initial = {initial}, .* at least 2'):
            ars.AdaptiveRollouts(initial, 10)
    with pytest.raises(ValueError, match='total_steps = 0: .* at least 1 step'):
        ars.AdaptiveRollouts(8, 0)
