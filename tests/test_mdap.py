"""
mdap.py against reference values (tests/golden), a naive second implementation, and the properties of Eq. 6-9.
"""
import copy
import json
import random
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch

import mdap

GOLDEN = json.loads((Path(__file__).parent / 'golden' / 'mdap.json').read_text())
# Not ours on purpose: this one groups by advantages rounded to 4 decimals, where a tolerance chains them.
# test_equal_is_chained_not_rounded has our answer; in all other cases the two readings agree.
ROUNDED = {'chain_vs_round'}
TAUS = [0, 0.2, 0.4, 0.5, 0.6, 0.8, 1.0, 1.01]


def cases(skip=()):
    return [pytest.param(case['inputs'], case['expected'], id=case['name'])
            for case in GOLDEN['cases'] if case['name'] not in skip]


def random_question(rng, size=8, vocabulary=9, length=10):
    """Few rewards and few distinct ids, so that groups, overlaps and exact ties with tau are common."""
    responses = [[rng.randrange(vocabulary) for _ in range(rng.randrange(length))] for _ in range(size)]
    levels = [rng.uniform(-2, 2) for _ in range(3)]
    advantages = [rng.choice(levels) + rng.choice([0, 0, 3e-5, -3e-5]) for _ in range(size)]
    return responses, advantages


def grams(ids, n):
    return {tuple(ids[i:i + n]) for i in range(len(ids) - n + 1)}


def theta(a, b, n):
    a, b = grams(a, n), grams(b, n)
    return 1 - Fraction(len(a & b), len(a | b)) if a | b else Fraction(0)


def naive_groups(advantages, eps=1e-4):
    """Merge groups that contain a pair closer than eps until nothing changes."""
    groups = [{i} for i in range(len(advantages))]
    merged = True
    while merged:
        merged = False
        for a in groups:
            for b in groups:
                if a is not b and any(abs(advantages[i] - advantages[j]) < eps for i in a for j in b):
                    a |= b
                    groups.remove(b)
                    merged = True
                    break
            if merged:
                break
    return groups


def naive_select(responses, advantages, tau, n):
    kept = []
    for group in naive_groups(advantages):
        chosen = []
        for i in sorted(group, key=lambda i: (-abs(advantages[i]), i)):
            if all(theta(responses[i], responses[j], n) >= Fraction(str(tau)) for j in chosen):
                chosen.append(i)
        kept += chosen
    return sorted(kept)


# select -----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('inputs, expected', cases(skip=ROUNDED))
def test_select_matches_reference_values(inputs, expected):
    tau, ngram, questions = inputs['tau'], inputs['n'], inputs['questions']
    got = [mdap.select(q['responses'], q['advantages'], tau, ngram) for q in questions]
    assert got == expected['kept']
    assert sum(len(kept) for kept in got) == expected['n_kept']
    assert [mdap.advantage_groups(q['advantages']) for q in questions] == expected['groups']


@pytest.mark.parametrize('case', GOLDEN['boundary_cases'])
def test_pair_exactly_at_tau_stays(case):
    """In floats 1 - 4/5 is less than 0.2: the pair would be lost to rounding."""
    inputs = case['inputs']
    question, = inputs['questions']
    got = mdap.select(question['responses'], question['advantages'], inputs['tau'], inputs['n'])
    assert [got] == case['expected_exact_arithmetic']


def test_tau_from_a_sweep_is_the_decimal_that_was_meant():
    """numpy's arange yields 0.6000000000000001, for which an exact comparison would drop a pair at 3/5."""
    tau = np.arange(0, 1.2, 0.2)[3]
    assert tau != 0.6
    assert mdap.select([[1, 2, 3, 4, 5], [1, 2]], [1.0, 1.0], tau) == [0, 1]


@pytest.mark.parametrize('ngram', [1, 2, 3])
@pytest.mark.parametrize('tau', TAUS)
def test_select_agrees_with_the_naive_implementation(tau, ngram):
    rng = random.Random(f'{tau} {ngram}')
    for _ in range(60):
        responses, advantages = random_question(rng, size=rng.randrange(1, 10))
        wanted = naive_select(responses, advantages, tau, ngram)
        assert mdap.select(responses, advantages, tau, ngram) == wanted


@pytest.mark.parametrize('tau', TAUS)
def test_kept_set_is_independent_and_maximal(tau):
    """Eq. 8: inside a group kept pairs are at least tau apart, and each dropped one is near a kept one."""
    rng = random.Random(int(tau * 100))
    for _ in range(40):
        responses, advantages = random_question(rng)
        kept = mdap.select(responses, advantages, tau)
        assert kept == sorted(set(kept))
        for group in naive_groups(advantages):
            inside = [i for i in kept if i in group]
            assert inside                                    # at least one per group
            for i in group:
                others = [theta(responses[i], responses[j], 1) for j in inside if j != i]
                assert all(t >= Fraction(str(tau)) for t in others) == (i in inside)


def test_tau_zero_keeps_all_and_tau_above_one_keeps_one_per_group():
    rng = random.Random(0)
    for _ in range(40):
        responses, advantages = random_question(rng)
        assert mdap.select(responses, advantages, 0) == list(range(8))
        kept = mdap.select(responses, advantages, 1.01)
        best = [min(group, key=lambda i: (-abs(advantages[i]), i)) for group in naive_groups(advantages)]
        assert kept == sorted(best)


def test_groups_do_not_influence_each_other():
    """Each group alone gives the same survivors, and the groups may be interleaved in any way."""
    rng = random.Random(1)
    for _ in range(40):
        responses, advantages = random_question(rng)
        kept = mdap.select(responses, advantages, 0.6)
        groups = [sorted(group) for group in naive_groups(advantages)]
        alone = []
        for group in groups:
            part = mdap.select([responses[i] for i in group], [advantages[i] for i in group], 0.6)
            alone += [group[i] for i in part]
        assert sorted(alone) == kept
        order = []                                           # shuffle the groups, keep the order inside each
        queues = [list(group) for group in groups]
        while queues:
            queue = rng.choice(queues)
            order.append(queue.pop(0))
            queues = [queue for queue in queues if queue]
        shuffled = mdap.select([responses[i] for i in order], [advantages[i] for i in order], 0.6)
        assert sorted(order[i] for i in shuffled) == kept


def test_every_kept_one_is_compared_not_only_the_first():
    """c is far from a, the group's first, but equal to b, which was kept as well."""
    a, b, c = [1, 2, 3], [4, 5, 6], [6, 5, 4]
    assert mdap.select([a, b, c], [1.0, 1.0, 1.0], 0.8) == [0, 1]


def test_higher_advantage_is_visited_first():
    """Inside a chained group the largest |A| survives, wherever it stands; ties go to the lower index."""
    same = [[1, 2], [2, 1], [1, 2, 2]]
    assert mdap.select(same, [-0.50000, -0.50005, -0.50002], 0.5) == [1]
    assert mdap.select(same, [0.00003, -0.00005, 0.00002], 0.5) == [1]
    assert mdap.select(same, [0.5, 0.5, 0.5], 0.5) == [0]


def test_list_array_and_tensor_inputs_agree_and_are_not_written():
    rng = random.Random(2)
    for _ in range(20):
        responses, advantages = random_question(rng)
        before = copy.deepcopy((responses, advantages))
        wanted = mdap.select(responses, advantages, 0.6, 2)
        assert (responses, advantages) == before
        arrays = [np.array(ids, dtype=np.int32) for ids in responses]
        tensors = [torch.tensor(ids, dtype=torch.long) for ids in responses]
        assert mdap.select(arrays, np.array(advantages), 0.6, 2) == wanted
        assert mdap.select(tensors, torch.tensor(advantages, dtype=torch.float64), 0.6, 2) == wanted
        assert all(isinstance(i, int) for i in wanted)
        assert [ids.tolist() for ids in arrays] == [ids.tolist() for ids in tensors] == responses


@pytest.mark.parametrize('ngram', [3, 4, 7])
def test_long_ngrams_of_a_large_vocabulary_stay_exact(ngram):
    """From n = 4 on the codes of 151,936 ids need more than 63 bits."""
    rng = random.Random(ngram)
    for _ in range(20):
        responses, advantages = random_question(rng, vocabulary=3, length=14)
        responses = [[151935 - 50000 * token for token in ids] for ids in responses]
        wanted = naive_select(responses, advantages, 0.5, ngram)
        assert mdap.select(responses, advantages, 0.5, ngram) == wanted


def test_ngram_codes_do_not_wrap_around():
    """65,536 to the fourth power is 2**64: in 64 bits the first of five ids would count for nothing."""
    assert deviation([1, 5, 5, 5, 65535], [2, 5, 5, 5, 65535], 5) == 1


def test_empty_and_too_short_responses():
    assert mdap.select([], [], 0.8) == []
    assert mdap.select([[]], [0.0], 0.8) == [0]
    assert mdap.select([[], []], [0.0, 0.0], 0.8) == [0]     # two empty sets are equal
    assert mdap.select([[], []], [0.0, 0.0], 0) == [0, 1]
    assert mdap.select([[], [4]], [0.0, 0.0], 1.0) == [0, 1]
    assert mdap.select([[4], [5], [4, 5, 6]], [0.0] * 3, 0.8, ngram=3) == [0, 2]


def test_lists_that_do_not_match_are_refused():
    with pytest.raises(ValueError, match='zip'):             # never silently shorter
        mdap.align([[0], [0]], [[1.0]], 1)


# groups and deviations --------------------------------------------------------------------------------------

def test_groups_are_a_transitive_closure():
    advantages = [0.00036, 1.0, 0.00018, 0.0, 0.00027, 0.00009, 0.9998]
    assert mdap.advantage_groups(advantages) == [[1], [6], [0, 2, 3, 4, 5]]
    assert mdap.advantage_groups([1.0, -1.0, 1.00005, 1.0001]) == [[0, 2, 3], [1]]
    rng = random.Random(3)
    for _ in range(50):
        _, advantages = random_question(rng)
        assert sorted(mdap.advantage_groups(advantages)) == sorted(map(sorted, naive_groups(advantages)))


def test_equal_is_chained_not_rounded():
    """0.00004 and 0.00006 round to different 4-decimal numbers but are one group; so is a chain."""
    case, = [case for case in GOLDEN['cases'] if case['name'] in ROUNDED]
    question, = case['inputs']['questions']
    assert mdap.advantage_groups(question['advantages']) == [[5], [0, 1, 2, 3, 4]]
    assert mdap.advantage_groups([0.00004, 0.00006]) == [[0, 1]]


def deviation(a, b, n=1):
    return mdap.deviation(mdap.ngrams(a, n), mdap.ngrams(b, n))


def test_deviation_is_one_minus_jaccard():
    assert deviation([5, 6, 7, 8], [5, 6, 7, 9]) == Fraction(2, 5)
    assert deviation([1, 1, 2], [2, 1]) == 0                 # a set: repeats and order do not count
    assert deviation([1, 1, 2], [2, 1], 2) == 1
    assert deviation([], []) == 0
    assert deviation([], [1]) == 1
    rng = random.Random(4)
    for n in (1, 2, 3):
        a, b = ([rng.randrange(6) for _ in range(20)] for _ in range(2))
        assert deviation(a, b, n) == deviation(b, a, n) == theta(a, b, n)


def test_select_docstring_example():
    responses = [[5, 6, 7, 8], [5, 6, 7, 9]]
    assert mdap.select(responses, [1, 1], 0.4) == [0, 1]
    assert mdap.select(responses, [1, 1], 0.5) == [0]
    assert mdap.select(responses, [1, -1], 2) == [0, 1]


# align ------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('inputs, expected', cases())
def test_align_matches_reference_values(inputs, expected):
    """The reference goes round the questions by ascending id; align() goes in the order it is given."""
    order = sorted(range(len(inputs['questions'])), key=lambda q: inputs['questions'][q]['id'])
    advantages = [inputs['questions'][q]['advantages'] for q in order]
    got = mdap.align([expected['kept'][q] for q in order], advantages, inputs['d'])
    assert got == [expected['kept_aligned'][q] for q in order]
    assert sum(len(kept) for kept in got) == expected['n_aligned']


@pytest.mark.parametrize('divisor', [1, 2, 3, 8, 32, 1000])
def test_align_adds_the_fewest_and_drops_nothing(divisor):
    rng = random.Random(divisor)
    for _ in range(40):
        questions = [random_question(rng, size=rng.randrange(1, 9)) for _ in range(5)]
        advantages = [adv for _, adv in questions]
        kept = [mdap.select(responses, adv, 0.8) for responses, adv in questions]
        before = copy.deepcopy((kept, advantages))
        aligned = mdap.align(kept, advantages, divisor)
        assert (kept, advantages) == before                  # the caller's lists are not written
        assert all(new is not old for new, old in zip(aligned, kept, strict=True))
        added = sum(map(len, aligned)) - sum(map(len, kept))
        everything = sum(map(len, advantages))
        if sum(map(len, aligned)) % divisor:
            assert sum(map(len, aligned)) == everything      # nothing was left to add
        else:
            assert added < divisor
        for old, new, adv in zip(kept, aligned, advantages, strict=True):
            assert set(old) <= set(new) and new == sorted(set(new))
            back = [abs(adv[i]) for i in new if i not in old]
            out = [abs(adv[i]) for i in range(len(adv)) if i not in new]
            assert not back or not out or min(back) >= max(out)


def test_align_thirteen_survivors_for_two_ranks_of_four():
    """D3: 13 survivors do not divide by 8; three come back, one per question and pass, and none is lost."""
    advantages = [[1.0, -1.0, 1.0, -1.0, 0.5, 0.2]] * 4
    kept = [[0, 1, 2], [0, 1, 2, 3], [1, 2, 3], [0, 1, 4]]
    assert mdap.align(kept, advantages, 8) == [[0, 1, 2, 3], [0, 1, 2, 3, 4], [0, 1, 2, 3], [0, 1, 4]]


def test_align_of_nothing_is_nothing():
    assert mdap.align([], [], 8) == []
    assert mdap.align([[], []], [[1.0], [2.0]], 8) == [[], []]                # 0 divides by 8


def test_align_docstring_example_with_tensors():
    advantages = [torch.tensor([1.0, -1, 2]), np.array([0.0, 3])]
    assert mdap.align([[0], [1]], advantages, 4) == [[0, 2], [0, 1]]


# the baselines ----------------------------------------------------------------------------------------------

CPPO = json.loads((Path(__file__).parent / 'golden' / 'cppo.json').read_text())['cases']


@pytest.mark.parametrize('case', [pytest.param(case, id=case['name']) for case in CPPO
                                  if case['kind'] == 'per_question_topk'])
def test_cppo_matches_reference_values(case):
    """k comes from each group's real size; ties at the cut go to the lower index."""
    inputs, expected = case['inputs'], case['expected']
    got = [mdap.cppo(advantages, inputs['pruning_rate']) for advantages in inputs['advantages']]
    assert got == expected['kept'] and {len(kept) for kept in got} == {expected['k']}
    for advantages, kept, theirs in zip(inputs['advantages'], got, expected.get('torch_topk_kept', got)):
        assert sorted(abs(advantages[i]) for i in kept) == sorted(abs(advantages[i]) for i in theirs)


@pytest.mark.parametrize('case', [pytest.param(case, id=case['name']) for case in CPPO
                                  if case['kind'] == 'global_topk'])
def test_cppo_of_one_question_is_the_released_ranking(case):
    """The released code ranks the whole batch by the same rule; with one question both agree."""
    expected = case['expected']['verl_variant']
    got = mdap.cppo(case['inputs']['advantages_flat'], case['inputs']['pruning_rate'])
    assert len(got) == expected['k_keep'] and (got == expected['kept'] or expected['tie_at_cut'])


@pytest.mark.parametrize('case', [pytest.param(case, id=case['name']) for case in CPPO
                                  if case['kind'] == 'allocation' and case['inputs']['pruning_rate'] < 1])
def test_cppo_allocation_keeps_the_trained_rows(case):
    """questions_per_step / (1 - P), as released, times the k kept of each: as many rows as unpruned."""
    inputs, expected = case['inputs'], case['expected']
    questions, G, rate = inputs['verl_train_batch_size'], inputs['num_generations'], inputs['pruning_rate']
    more = int(questions / (1 - rate))
    assert more == expected['verl_train_batch_size']
    kept = more * len(mdap.cppo([float(i) for i in range(G)], rate))
    assert questions * G * (1 - 1 / questions) <= kept <= questions * G


def test_cppo_edges():
    assert mdap.cppo([], 0.5) == []
    assert mdap.cppo([0.3], 0.99) == [0]                     # at least one
    assert mdap.cppo([1, -2, 0, 0.5], 0.5) == [0, 1]
    assert mdap.cppo([1, -2, 0, 0.5], 0) == [0, 1, 2, 3]


def test_random_prune_is_uniform_and_seeded():
    """Every trajectory is kept equally often; the same generator draws the same, the next draw differs."""
    generator = torch.Generator().manual_seed(0)
    draws = [mdap.random_prune(8, 0.75, generator) for _ in range(2000)]
    assert all(len(kept) == 2 and kept == sorted(set(kept)) for kept in draws)
    counts = [sum(i in kept for kept in draws) for i in range(8)]
    assert max(abs(count - 500) for count in counts) < 100
    assert draws[:9] == [mdap.random_prune(8, 0.75, generator.manual_seed(0)) if i == 0 else
                         mdap.random_prune(8, 0.75, generator) for i in range(9)]
    assert len({tuple(kept) for kept in draws}) == 28
    assert mdap.random_prune(0, 0.5, generator) == []
    assert mdap.random_prune(3, 0.9, generator) in ([0], [1], [2])
    for n, rate in ((8, 0.25), (8, 0.5), (5, 0.5)):
        assert len(mdap.random_prune(n, rate, generator)) == len(mdap.cppo([0.0] * n, rate))


def test_advantage_only_draws_one_of_each_group():
    generator = torch.Generator().manual_seed(0)
    advantages = [1.0, -1.0, 1.00005, 0.2, -1.0]
    draws = {tuple(mdap.advantage_only(advantages, generator)) for _ in range(200)}
    assert draws == {tuple(sorted((a, 3, b))) for a in (0, 2) for b in (1, 4)}
    assert mdap.advantage_only([], generator) == []
