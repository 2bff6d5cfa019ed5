"""
losses.py against reference values (tests/golden) and against bugs that others reported.

Ids such as "L1" name the report a test guards against; the docstring tells the story.
"""
import json
import math
from pathlib import Path

import pytest
import torch

import losses

GOLDEN = Path(__file__).parent / 'golden'
RATIOS = {'default': 'token', 'gspo': 'sequence', 'gspo_token': 'sequence_token', 'sequence': 'sequence',
          'token': 'token'}
KINDS = {'kl': 'k1', 'abs': 'abs', 'mse': 'k2', 'low_var_kl': 'k3'}
WIDE = {'clip_low': 0.9, 'clip_high': 1e6}                 # a clip range that never acts


def golden(name, only=lambda case: True):
    cases = json.loads((GOLDEN / f'{name}.json').read_text())['cases']
    return [pytest.param(case['inputs'], case['expected'], id=case['name']) for case in cases if only(case)]


def double(values):
    return torch.tensor(values, dtype=torch.float64)


def close(got, wanted, rtol=1e-6, atol=1e-8):
    got = torch.as_tensor(got, dtype=torch.float64)
    torch.testing.assert_close(got, double(wanted), rtol=rtol, atol=atol)


def random_batch(seed=0, rows=8, length=12):
    """Log-probs that differ enough for every clip to act, and responses of different lengths."""
    g = torch.Generator().manual_seed(seed)
    logps = -torch.rand(rows, length, generator=g, dtype=torch.float64) * 3
    old_logps = logps + torch.randn(rows, length, generator=g, dtype=torch.float64) * 0.5
    advantages = torch.randn(rows, generator=g, dtype=torch.float64)
    mask = torch.arange(length) < torch.randint(1, length + 1, (rows, 1), generator=g)
    return logps, old_logps, advantages, mask


# advantages -------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('inputs, expected', golden('advantages_grpo'))
def test_advantages_match_reference_values(inputs, expected):
    ids = inputs['group_ids']
    owner = torch.tensor([ids.index(i) for i in ids])
    got = losses.group_advantages(double(inputs['rewards']), owner, eps=inputs['eps'])
    close(got, expected['advantages'], rtol=1e-8)
    if 'token_advantages' in expected:
        lengths = torch.tensor(inputs['response_lengths'])
        mask = torch.arange(max(inputs['response_lengths'])) < lengths[:, None]
        loss, _ = losses.policy_loss(mask * 1.0, mask * 1.0, got, mask, clip_low=0.2, clip_high=0.2)
        close(-loss, expected['token_advantages'], rtol=1e-8)       # ratio 1: the loss is minus A


@pytest.mark.parametrize('reward', [0.9, 0.1, 1 / 3, -0.7, 0.0, 1e6])
@pytest.mark.parametrize('size', [1, 2, 3, 8, 17])
@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
def test_flat_group_is_exactly_zero(reward, size, dtype):
    """L8: a group of one has the std NaN. And the float32 mean of eight times 0.9 is one rounding off 0.9."""
    rewards = torch.full((size,), reward, dtype=dtype)
    got = losses.group_advantages(rewards, torch.zeros(size, dtype=torch.long))
    assert got.dtype == dtype
    assert got.tolist() == [0.0] * size


def test_rewards_one_rounding_apart_are_flat():
    """One reward summed in two orders (format + accuracy, accuracy + format + length) is still one reward."""
    reward = torch.tensor(0.9)
    rewards = torch.stack([reward, torch.nextafter(reward, torch.tensor(1.0)), reward])
    assert rewards[0] != rewards[1]
    assert losses.group_advantages(rewards, torch.tensor([0, 0, 0])).tolist() == [0.0] * 3


def test_nan_reward_stays_visible():
    got = losses.group_advantages(torch.tensor([1.0, math.nan, 0.0, 1.0]), torch.tensor([0, 0, 1, 1]))
    assert got.isnan().tolist() == [True, True, False, False]


def test_statistics_are_those_of_the_group():
    """L6: statistics over the whole batch let an easy question lift all its rollouts."""
    rewards = torch.tensor([1.0, 0, 0, 0, 1, 1, 1, 0])
    wanted = torch.tensor([1.5, -0.5, -0.5, -0.5, 0.5, 0.5, 0.5, -1.5])
    owner = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])
    torch.testing.assert_close(losses.group_advantages(rewards, owner), wanted, rtol=1e-5, atol=0)
    for seed in range(5):                                    # neither row order nor the ids' values matter
        order = torch.randperm(8, generator=torch.Generator().manual_seed(seed))
        got = losses.group_advantages(rewards[order], owner[order] * 40 - 7)
        torch.testing.assert_close(got, wanted[order], rtol=1e-5, atol=0)


def test_neighbours_do_not_matter_with_unequal_groups():
    """L6: groups of 3 and 5, interleaved, get what each gets alone."""
    g = torch.Generator().manual_seed(1)
    rewards = torch.rand(8, generator=g, dtype=torch.float64)
    owner = torch.tensor([4, 2, 4, 4, 2, 2, 4, 4])
    got = losses.group_advantages(rewards, owner)
    for question in (2, 4):
        rows = owner == question
        alone = losses.group_advantages(rewards[rows], owner[rows])
        torch.testing.assert_close(got[rows], alone, rtol=0, atol=0)


def test_ids_unique_per_row_give_zero_not_nan():
    """L7: with one id per row every group has size one, and nothing may be learnt from it."""
    assert losses.group_advantages(torch.tensor([1.0, 0, 0.5]), torch.tensor([5, 6, 7])).tolist() == [0, 0, 0]


# policy loss ------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('inputs, expected', golden('policy_loss'))
def test_policy_loss_matches_reference_values(inputs, expected):
    logps = double(inputs['log_probs']).requires_grad_()
    mask = torch.tensor(inputs['response_mask'])
    loss, stats = losses.policy_loss(
        logps, double(inputs['old_log_probs']), double(inputs['advantages']), mask,
        ratio=RATIOS[inputs['loss_type']], clip_low=inputs['clip_ratio_low'],
        clip_high=inputs['clip_ratio_high'], dual_clip=inputs['clip_ratio_dual'])
    total = losses.average(loss, mask, inputs['loss_avg_mode'])
    total.backward()
    close(total, expected['loss'])
    close(logps.grad, expected['grad_log_probs'])
    close(losses.average(stats['clip_fraction'], mask), expected['pg_clipfrac_higher'])
    unlimited, _ = losses.policy_loss(
        logps, double(inputs['old_log_probs']), double(inputs['advantages']), mask,
        ratio=RATIOS[inputs['loss_type']], clip_low=inputs['clip_ratio_low'],
        clip_high=inputs['clip_ratio_high'])
    close(losses.average((loss < unlimited).double(), mask), expected['pg_clipfrac_lower'])
    close(losses.average(double(inputs['old_log_probs']) - logps, mask), expected['ppo_kl'])
    close(losses.average(-logps, mask, inputs['loss_avg_mode']), expected['entropy_loss'])


@pytest.mark.parametrize('inputs, expected', golden('policy_loss'))
def test_policy_loss_in_float32(inputs, expected):
    logps = torch.tensor(inputs['log_probs']).requires_grad_()
    mask = torch.tensor(inputs['response_mask'])
    loss, stats = losses.policy_loss(
        logps, torch.tensor(inputs['old_log_probs']), torch.tensor(inputs['advantages']), mask,
        ratio=RATIOS[inputs['loss_type']], clip_low=inputs['clip_ratio_low'],
        clip_high=inputs['clip_ratio_high'], dual_clip=inputs['clip_ratio_dual'])
    total = losses.average(loss, mask, inputs['loss_avg_mode'])
    total.backward()
    assert {total.dtype, loss.dtype, *(value.dtype for value in stats.values())} == {torch.float32}
    close(total, expected['loss'], rtol=1e-5, atol=1e-6)
    close(logps.grad, expected['grad_log_probs'], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize('inputs, expected', golden('trl_loss'))
def test_whole_loss_matches_trl(inputs, expected):
    """Every aggregation of TRL is an average() with the right count; its `delta`, a cap on the ratio, is a
    dual clip: delta > 1 + high, so with A > 0 the clip acts first, and with A < 0 it caps the loss."""
    logps = double(inputs['log_probs']).requires_grad_()
    old_logps = logps.detach() if inputs['old_log_probs'] is None else double(inputs['old_log_probs'])
    mask = torch.tensor(inputs['completion_mask'])
    level = inputs['importance_sampling_level']
    how, count = {'grpo': ('seq', None),
                  'bnpo': ('token', None),
                  'dr_grpo': ('token', len(mask) * inputs['max_completion_length']),
                  'dapo': ('token', inputs['num_items_in_batch'])}[inputs['loss_type']]
    loss, stats = losses.policy_loss(
        logps, old_logps, double(inputs['advantages']), mask, ratio=RATIOS[level],
        clip_low=inputs['epsilon_low'], clip_high=inputs['epsilon_high'], dual_clip=inputs.get('delta'))
    if inputs['beta']:
        kl = losses.kl_penalty(logps, double(inputs['ref_log_probs']))
        loss = loss + inputs['beta'] * kl
        close(losses.average(kl, mask), expected['kl_metric'], rtol=1e-7, atol=1e-9)
    total = losses.average(loss, mask, how, count)
    total.backward()
    close(total, expected['loss'], rtol=1e-7, atol=1e-9)
    close(logps.grad, expected['grad_log_probs'], rtol=1e-7, atol=1e-9)
    metric = 'seq' if level == 'sequence' else 'token'       # TRL counts one clip per response there
    clipped, positive = stats['clip_fraction'], double(inputs['advantages'])[:, None] > 0
    close(losses.average(clipped * ~positive, mask, metric), expected['clip_low_mean'])
    close(losses.average(clipped * positive, mask, metric), expected['clip_high_mean'])


@pytest.mark.parametrize('ratio', ['token', 'sequence', 'sequence_token'])
def test_dual_clip_acts_on_negative_advantages_only(ratio):
    logps = double([[2.0, 2.0], [2.0, 2.0]])
    zeros, mask = torch.zeros_like(logps), torch.ones(2, 2)
    loss, stats = losses.policy_loss(logps, zeros, double([-1, 1]), mask, ratio=ratio,
                                     clip_low=0.2, clip_high=0.3, dual_clip=3.0)
    close(loss, [[3.0, 3.0], [-1.3, -1.3]])
    assert stats['clip_fraction'].tolist() == [[0, 0], [1, 1]]
    loss, _ = losses.policy_loss(logps, zeros, double([-1, 1]), mask, ratio=ratio,
                                     clip_low=0.2, clip_high=0.3)
    close(loss[0], [math.exp(2)] * 2)


@pytest.mark.parametrize('ratio', ['token', 'sequence', 'sequence_token'])
def test_gradient_is_alive_on_policy(ratio):
    """L4: a ratio of detached terms trains nothing, while rewards and loss look healthy. Even old_logps that
    nobody detached must not cancel the gradient."""
    torch.manual_seed(0)
    logits = torch.zeros(4, 6, 11, requires_grad=True)
    ids = torch.randint(11, (4, 6))

    def logps():
        return logits.log_softmax(-1).gather(2, ids[:, :, None])[:, :, 0]

    advantages = losses.group_advantages(torch.tensor([1.0, 0, 0, 0]), torch.zeros(4, dtype=torch.long))
    mask = torch.ones(4, 6)
    now = logps()
    loss, _ = losses.policy_loss(now, now, advantages, mask, ratio=ratio, clip_low=0.2, clip_high=0.3)
    total = losses.average(loss, mask, 'seq')
    total.backward()
    assert abs(total.item()) < 1e-6
    assert logits.grad.norm() > 0.1
    with torch.no_grad():
        logits -= 0.1 * logits.grad
    assert (logps()[0] > now[0]).all()                       # the rewarded response became more likely
    assert (logps()[1:] < now[1:]).all()


def test_first_loss_is_zero_by_sequence_but_not_by_token():
    """L5: with ratio 1 and centred advantages only the average over responses cancels."""
    mask = torch.arange(8) < torch.tensor([[2], [8]])
    logps = torch.full((2, 8), -1.0)
    loss, _ = losses.policy_loss(logps, logps, torch.tensor([1.0, -1.0]), mask, clip_low=0.2, clip_high=0.2)
    assert losses.average(loss, mask, 'seq').item() == 0.0
    assert losses.average(loss, mask, 'token').item() == pytest.approx(0.6)


@pytest.mark.parametrize('ratio', ['sequence', 'sequence_token'])
def test_sequence_ratio_ignores_padding_and_normalises_by_length(ratio):
    """L10: exp(0.1); the sum would give 1.34986, padding that leaks into the mean 7.846."""
    logps = double([[0.3, -0.1, 0.1, 5.0, 5.0]]).requires_grad_()
    mask = torch.tensor([[1, 1, 1, 0, 0]])
    loss, _ = losses.policy_loss(logps, torch.zeros_like(logps), double([1]), mask, ratio=ratio, **WIDE)
    close(-loss, [[math.exp(0.1)] * 3 + [0, 0]])
    losses.average(loss, mask, 'seq').backward()
    close(logps.grad, [[-math.exp(0.1) / 3] * 3 + [0, 0]])


@pytest.mark.parametrize('ratio', ['sequence', 'sequence_token'])
@pytest.mark.parametrize('length', [10, 2000])
def test_sequence_ratio_does_not_shrink_with_length(ratio, length):
    """L14: a summed log-ratio of -0.0015 per token would weigh a response of 2000 tokens with 0.0498."""
    logps = torch.full((1, length), -0.0015, dtype=torch.float64)
    mask = torch.ones(1, length)
    loss, _ = losses.policy_loss(logps, torch.zeros_like(logps), double([1]), mask, ratio=ratio, **WIDE)
    close(-loss, [[math.exp(-0.0015)] * length])


@pytest.mark.parametrize('ratio', ['token', 'sequence', 'sequence_token'])
@pytest.mark.parametrize('how', ['token', 'seq'])
@pytest.mark.parametrize('garbage', [math.inf, -math.inf, math.nan])
def test_masked_garbage_reaches_neither_value_nor_gradient(ratio, how, garbage):
    """L11: inf * 0 is NaN, so a product with the mask lets padding into the loss or the gradient."""
    logps, old_logps, advantages, mask = random_batch(seed=3)
    advantages = advantages[:, None].expand_as(logps)
    knobs = {'ratio': ratio, 'clip_low': 0.2, 'clip_high': 0.3, 'dual_clip': 3.0}

    def run(fill):
        inputs = [torch.where(mask, x, fill) for x in (logps, old_logps, advantages, old_logps)]
        policy, old, adv, ref = inputs
        policy.requires_grad_()
        loss, stats = losses.policy_loss(policy, old, adv, mask, **knobs)
        for kind in ('k1', 'k2', 'k3', 'abs'):
            for other in (ref, torch.where(mask, ref, 0)):   # garbage minus garbage, and garbage on one side
                loss = loss + 0.1 * losses.kl_penalty(policy, other, kind)
        total = losses.average(loss, mask, how)
        total.backward()
        return total.detach(), policy.grad, stats

    total, grad, stats = run(garbage)
    clean_total, clean_grad, clean_stats = run(0.0)
    assert total.isfinite() and grad.isfinite().all()
    torch.testing.assert_close(total, clean_total, rtol=0, atol=0)
    torch.testing.assert_close(grad, clean_grad, rtol=0, atol=0)
    assert (grad[~mask] == 0).all()
    for name, value in stats.items():
        torch.testing.assert_close(value, clean_stats[name], rtol=0, atol=0)
        assert (value[~mask] == 0).all() and not value.requires_grad


def test_nan_at_a_real_token_stays_visible():
    """L12: whoever skips the step must be able to see it."""
    logps, old_logps, advantages, mask = random_batch()
    logps[0, 0] = math.nan
    loss, _ = losses.policy_loss(logps, old_logps, advantages, mask, clip_low=0.2, clip_high=0.3)
    assert losses.average(loss, mask).isnan()
    assert losses.average(losses.kl_penalty(logps, old_logps), mask).isnan()


@pytest.mark.parametrize('ratio', ['token', 'sequence', 'sequence_token'])
@pytest.mark.parametrize('dual_clip', [None, 3.0])
def test_extreme_ratios_stay_finite_without_gradient(ratio, dual_clip):
    """exp(100) is inf in float32, and there inf - inf or inf * 0 waits. The exponent stops at 20."""
    logps = torch.tensor([[100.0], [100.0], [-100.0], [-100.0]], requires_grad=True)
    loss, _ = losses.policy_loss(logps, torch.zeros(4, 1), torch.tensor([1.0, -1, 1, -1]), torch.ones(4, 1),
                                 ratio=ratio, clip_low=0.2, clip_high=0.3, dual_clip=dual_clip)
    close(loss, [[-1.3], [dual_clip or math.exp(20)], [-math.exp(-20)], [0.8]])
    losses.average(loss, torch.ones(4, 1)).backward()
    assert logps.grad.tolist() == [[0.0]] * 4


def test_mask_may_be_bool_int_or_float_and_nothing_is_written():
    logps, old_logps, advantages, mask = random_batch()
    before = [x.clone() for x in (logps, old_logps, advantages, mask)]
    results = []
    for kind in (mask, mask.long(), mask.float()):
        loss, _ = losses.policy_loss(logps, old_logps, advantages, kind, clip_low=0.2, clip_high=0.3)
        results.append(losses.average(loss, kind, 'seq').item())
    assert results[0] == results[1] == results[2]
    for x, y in zip((logps, old_logps, advantages, mask), before, strict=True):
        assert torch.equal(x, y)


def test_unknown_names_raise():
    logps, old_logps, advantages, mask = random_batch()
    with pytest.raises(KeyError, match='seq'):
        losses.policy_loss(logps, old_logps, advantages, mask, ratio='seq', clip_low=0.2, clip_high=0.3)
    with pytest.raises(KeyError, match='k4'):
        losses.kl_penalty(logps, old_logps, 'k4')
    with pytest.raises(ValueError, match="how='sequence'.*'seq'"):
        losses.average(logps, mask, 'sequence')


# KL ---------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('inputs, expected', golden('kl'))
def test_kl_matches_reference_values(inputs, expected):
    logps = double(inputs['log_probs']).requires_grad_()
    got = losses.kl_penalty(logps, double(inputs['ref_log_probs']), KINDS[inputs['kl_penalty']])
    got.sum().backward()
    close(got, expected['kl'], rtol=1e-9, atol=1e-10)
    close(logps.grad, expected['grad_log_probs_of_sum'], rtol=1e-9, atol=1e-10)
    single = losses.kl_penalty(torch.tensor(inputs['log_probs']), torch.tensor(inputs['ref_log_probs']),
                               KINDS[inputs['kl_penalty']])
    assert single.dtype == torch.float32
    close(single, expected['kl_float32_reference'], rtol=2e-5, atol=2e-6)


def test_k3_survives_very_unlikely_tokens():
    """L11: exp(89) is inf in float32. 89 at a real token, 100 and inf at masked ones."""
    ref_logps = torch.tensor([[-1.0, -1.0, -1.0, 0.0]])
    logps = torch.tensor([[-90.0, -1.5, -101.0, -math.inf]], requires_grad=True)
    mask = torch.tensor([[1, 1, 0, 0]])
    kl = losses.kl_penalty(logps, ref_logps, 'k3')
    assert kl[0, 0] == 10                                    # the clamp
    total = losses.average(kl, mask)
    total.backward()
    assert total.isfinite() and logps.grad.isfinite().all()
    assert (logps.grad[0, 2:] == 0).all()


# averages ---------------------------------------------------------------------------------------------------

@pytest.mark.parametrize('how, count, wanted', [('token', 10, 0.2), ('seq', 2, 0.5)])
def test_average_does_not_depend_on_the_cut(how, count, wanted):
    """L1: two responses, 2 tokens with loss 1 and 8 with loss 0: as one batch, as two micro-batches, on two
    ranks, and beside a pruned third. Dividing each part by its own tokens gives 0.5 instead of 0.2."""
    mask = torch.arange(8) < torch.tensor([[2], [8]])
    values = torch.tensor([[1.0], [0.0]]).expand(2, 8)

    def value_and_gradient(rows, count):
        leaf = values.clone().requires_grad_()
        total = losses.average(leaf[rows], mask[rows], how, count)
        total.backward()
        return total.item(), leaf.grad

    whole, gradient = value_and_gradient([0, 1], None)
    assert whole == pytest.approx(wanted)
    parts = [value_and_gradient([row], count) for row in (0, 1)]
    assert sum(value for value, _ in parts) == pytest.approx(wanted)
    torch.testing.assert_close(sum(grad for _, grad in parts), gradient, rtol=0, atol=1e-6)
    ranks = [value_and_gradient([row], count / 2) for row in (0, 1)]         # DDP averages over 2 ranks
    assert sum(value for value, _ in ranks) / 2 == pytest.approx(wanted)
    torch.testing.assert_close(sum(grad for _, grad in ranks) / 2, gradient, rtol=0, atol=1e-6)
    pruned = torch.cat([mask, torch.zeros(1, 8, dtype=torch.bool)])          # a row of weight zero
    third = torch.cat([values, torch.full((1, 8), 7.0)])
    assert losses.average(third, pruned, how, count).item() == pytest.approx(wanted)


@pytest.mark.parametrize('ratio', ['token', 'sequence', 'sequence_token'])
@pytest.mark.parametrize('how', ['token', 'seq'])
@pytest.mark.parametrize('cut', [[1] * 8, [4, 4], [5, 2, 1]])
def test_micro_batches_add_up_to_the_same_gradient(ratio, how, cut):
    """L1 with the whole loss: 1 x 8 rows and 8 x 1 row, statistics included."""
    logps, old_logps, advantages, mask = random_batch(seed=5)
    mask[2] = False                                          # a padding row
    tokens = int(mask.sum())
    count = tokens if how == 'token' else 7

    def run(sizes):
        policy = logps.clone().requires_grad_()
        total = clipped = 0.0
        for rows in torch.arange(8).split(sizes):
            loss, stats = losses.policy_loss(policy[rows], old_logps[rows], advantages[rows], mask[rows],
                                             ratio=ratio, clip_low=0.1, clip_high=0.1, dual_clip=1.2)
            loss = loss + 0.01 * losses.kl_penalty(policy[rows], old_logps[rows])
            part = losses.average(loss, mask[rows], how, count)
            part.backward()
            total += part.item()
            clipped += losses.average(stats['clip_fraction'], mask[rows], count=tokens).item()
        return total, clipped, policy.grad

    total, clipped, gradient = run([8])
    assert 0 < clipped < 1
    got_total, got_clipped, got_gradient = run(cut)
    assert got_total == pytest.approx(total, abs=1e-12)
    assert got_clipped == pytest.approx(clipped, abs=1e-12)
    torch.testing.assert_close(got_gradient, gradient, rtol=1e-10, atol=1e-14)


def test_masked_tokens_leave_numerator_and_denominator():
    """L2: 4 tokens of loss 1 beside a truncated response of 12 masked tokens average to 1, not to 4/16."""
    mask = torch.zeros(2, 12)
    mask[0, :4] = 1
    values = torch.ones(2, 12)
    assert losses.average(values, mask, 'token').item() == 1.0
    assert losses.average(values, mask, 'token', count=4).item() == 1.0
    assert losses.average(values, mask, 'seq', count=1).item() == 1.0
    assert losses.average(values, mask, 'seq').item() == 0.5  # documented: without count, two responses


@pytest.mark.parametrize('ratio', ['token', 'sequence', 'sequence_token'])
@pytest.mark.parametrize('how', ['token', 'seq'])
@pytest.mark.parametrize('count', [None, 0, torch.tensor(0), 5])
def test_nothing_to_average_gives_zero(ratio, how, count):
    """L3: all responses of a micro-batch, or of the whole step, are cut off: loss and gradient 0, not 0/0."""
    logps, old_logps, advantages, mask = random_batch()
    logps.requires_grad_()
    mask = torch.zeros_like(mask)
    loss, _ = losses.policy_loss(logps, old_logps, advantages, mask, ratio=ratio, clip_low=0.2, clip_high=0.3)
    total = losses.average(loss + losses.kl_penalty(logps, old_logps), mask, how, count)
    total.backward()
    assert total.item() == 0.0
    assert (logps.grad == 0).all()


def test_empty_micro_batch_gives_zero():
    nothing = torch.zeros(0, 4, requires_grad=True)
    for how in ('token', 'seq'):
        assert losses.average(nothing, torch.zeros(0, 4), how).item() == 0.0


# overlong penalty -------------------------------------------------------------------------------------------

@pytest.mark.parametrize('inputs, expected', golden('dapo', lambda case: case['kind'] == 'overlong'))
def test_overlong_penalty_matches_reference_values(inputs, expected):
    got = losses.overlong_penalty(torch.tensor([inputs['response_length']]), inputs['max_response_length'],
                                  inputs['overlong_buffer'], inputs['penalty_factor'])
    close(got, [expected['paper_easyr1_times_factor']])


def test_overlong_penalty_edges():
    lengths = torch.tensor([9, 10, 11])
    assert losses.overlong_penalty(lengths, 10, 0).tolist() == [0, 0, -1]       # no division by zero
    assert lengths.tolist() == [9, 10, 11]
