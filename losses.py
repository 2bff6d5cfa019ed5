"""Rewards -> advantages; log-probs -> per-token loss -> scalar. Functions of tensors, no model, no settings.

GRPO (Eq. 1 of the FastRL paper, with average 'seq'), DAPO and GSPO are one loss of many knobs: config/*.py.
Beyond the papers: the ratio's exponent is clamped, negative advantages may have a dual clip, equal rewards
give exactly 0. Masked positions are selected away, never multiplied by 0: inf and nan there reach nothing."""
import torch

def group_advantages(rewards, owner, eps=1e-6):
    """A_i = (r_i - mean) / (std + eps) among the rollouts of one question, unbiased std (Eq. 5).
    rewards [1, 0, 0.5, 0.5], owner [7, 7, 3, 3] (questions, in any order) -> [0.707, -0.707, 0, 0]"""
    advantages = torch.zeros_like(rewards)                                # [N]
    for rows in owner == owner.unique()[:, None]:                         # [N], true for one question's
        group = rewards[rows]                                             # [G]
        # Equal up to rounding, or alone: no signal. Else eight times 0.9 in float32 would get -0.056 each.
        noise = 4 * torch.finfo(group.dtype).eps * group.abs().max()
        if not group.max() - group.min() <= noise:                        # nan goes through: it must be seen
            advantages[rows] = (group - group.mean()) / (group.std() + eps)
    return advantages

def policy_loss(logps, old_logps, advantages, mask, *, ratio='token', clip_low, clip_high, dual_clip=None):
    """Clipped policy-gradient loss per token -> loss [K, T], {'clip_fraction': 1 where clipped [K, T]}.
    logps, old_logps, mask [K, T]; advantages [K], or [K, T] if they differ inside a response. 0 where masked.
    ratio: 'token'; 'sequence', one per response (GSPO); 'sequence_token', that value, gradient per token.
    dual_clip: a negative advantage costs at most dual_clip * |A| (None: no limit)."""
    mask = mask.bool()
    advantages = torch.where(mask, advantages[:, None] if advantages.dim() == 1 else advantages, 0)  # [K, T]
    diff = torch.where(mask, logps - old_logps.detach(), 0)               # [K, T]
    mean = diff.sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp(min=1)            # [K, 1]
    log_ratios = {'token': diff, 'sequence': mean, 'sequence_token': mean.detach() + diff - diff.detach()}
    rho = log_ratios[ratio].clamp(-20, 20).exp()                          # [K, T] or [K, 1]
    rho = torch.where(advantages < 0, rho.clamp(max=dual_clip or torch.inf), rho)        # [K, T]
    free = -rho * advantages                                              # [K, T]
    # The larger of the two losses: leaving the clip range in the direction of the advantage earns nothing.
    loss = torch.maximum(free, -rho.clamp(1 - clip_low, 1 + clip_high) * advantages)     # [K, T]
    return loss, {'clip_fraction': (loss > free).to(logps.dtype)}

def kl_penalty(logps, ref_logps, kind='k3'):
    """Per-token estimate of KL(policy || reference) [K, T], from d = ref_logps - logps. k1: -d; abs: |d|;
    k2: d^2 / 2; k3: exp(d) - d - 1 with d clamped to [-20, 20] and the result to [-10, 10]."""
    d = ref_logps.detach() - logps                                        # [K, T]
    d = torch.where(d.isfinite(), d, d.detach())                          # inf and nan pass no gradient
    near = d.clamp(-20, 20)
    return {'k3': (near.exp() - near - 1).clamp(-10, 10), 'k1': -d, 'abs': d.abs(), 'k2': d ** 2 / 2}[kind]

def average(values, mask, how='token', count=None):
    """[K, T] -> scalar: the mean over tokens ('token'), or over responses of their token means ('seq').
    count: tokens or responses (also empty ones) of a whole update, whose parts add up; None: of this one."""
    if how not in ('token', 'seq'):
        raise ValueError(f"how={how!r}: use 'token' or 'seq'")
    mask = mask.bool()
    values, here = torch.where(mask, values, 0), mask.sum()               # [K, T], tokens
    if how == 'seq':
        values, here = values.sum(1) / mask.sum(1).clamp(min=1), len(mask)               # [K], responses
    return values.sum() / max(here if count is None else count, 1)

def overlong_penalty(lengths, max_length, buffer, factor=1.0):
    """DAPO's soft punishment, added to rewards [N]: 0 until the last `buffer` tokens, -factor at the end."""
    return -factor * ((lengths - (max_length - buffer)) / max(buffer, 1)).clamp(0, 1)    # [N]
