"""MDAP, maximizing differential advantage pruning: which trajectories of a question are worth training on.

In: one question's response token ids and advantages. Out: the indices to keep, before any log-prob pass.
Trajectories of equal advantage (Eq. 6) whose responses share most n-grams (Eq. 7) give nearly the same
gradient; a greedy walk per group keeps those that differ enough from every one already kept (Eq. 8). align()
then adds a few back until the batch divides evenly (Algorithm 1).
Departures: "equal" is less than eps apart, transitively, which covers continuous rewards; deviation and tau
are compared as exact fractions, since in floats 1 - 4/5 < 0.2 and a pair exactly at tau would be lost.
"""
from fractions import Fraction

import numpy as np


def select(responses, advantages, tau, ngram=1, eps=1e-4):
    """One question: lists of token ids without padding, and their advantages -> kept indices, ascending.

    responses [[5, 6, 7, 8], [5, 6, 7, 9]], advantages [1, 1]: 3 of 5 distinct ids are shared, deviation 0.4,
    so tau = 0.4 -> [0, 1] and tau = 0.5 -> [0]; with advantages [1, -1] both stay at any tau.
    tau = 0 keeps everything (plain GRPO), tau > 1 one per group; at least one per group always survives.
    """
    if len(responses) != len(advantages):
        raise ValueError(f"{len(responses)} responses, {len(advantages)} advantages: pass one per trajectory")
    advantages = [float(a) for a in advantages]
    tau = Fraction(round(tau * 10**6), 10**6)                  # the decimal that was meant, not its float
    if tau <= 0:
        return list(range(len(responses)))
    kept = []
    for group in advantage_groups(advantages, eps):
        group.sort(key=lambda i: (-abs(advantages[i]), i))
        if len(group) == 1 or tau > 1:                         # decided without looking at a token
            kept.append(group[0])
            continue
        has, chosen = ngram_table([responses[i] for i in group], ngram), []       # [group, U], rows of it
        for row in range(len(group)):
            if all(differ(has[row], has[other], tau) for other in chosen):
                chosen.append(row)
        kept += [group[row] for row in chosen]
    return sorted(kept)


def advantage_groups(advantages, eps=1e-4):
    """Indices of equal advantage, highest first (Eq. 6). Neighbours less than eps apart chain into one group.

    advantages [1.0, -1.0, 1.00005, 1.0001], eps 1e-4 -> [[0, 2, 3], [1]]
    """
    groups, previous = [], None
    for i in sorted(range(len(advantages)), key=lambda i: -advantages[i]):
        if previous is not None and advantages[previous] - advantages[i] < eps:
            groups[-1].append(i)
        else:
            groups.append([i])
        previous = i
    return [sorted(group) for group in groups]


def ngram_table(responses, ngram=1):
    """has [len(responses), U] bool: which of the U distinct n-grams of all responses does each one contain?

    responses [[5, 6, 5], [6, 7]] -> n-grams 5, 6, 7 -> [[True, True, False], [False, True, True]]
    """
    if ngram < 1:
        raise ValueError(f"ngram={ngram}: use 1 (single token ids, the paper's runs) or more")
    rows = [np.asarray(ids.cpu() if hasattr(ids, 'cpu') else ids, dtype=np.int64) for ids in responses]
    # An n-gram becomes one number with its ids as digits; Python integers (slow) where 63 bits are too few.
    base = 1 + max((int(ids.max()) for ids in rows if len(ids)), default=0)
    dtype = np.int64 if base**ngram < 2**63 else object
    codes = []
    for ids in rows:
        length = max(len(ids) - ngram + 1, 0)                  # a response shorter than n has no n-gram
        code = np.zeros(length, dtype)
        for i in range(ngram):
            code = code * base + ids[i:i + length]
        codes.append(code)                                     # [length]
    distinct, column = np.unique(np.concatenate(codes), return_inverse=True)      # [U], [sum of lengths]
    row = np.repeat(np.arange(len(rows)), [len(code) for code in codes])          # [sum of lengths]
    has = np.zeros((len(rows), len(distinct)), dtype=bool)                        # [len(responses), U]
    has[row, column] = True
    return has


def differ(a, b, tau):
    """theta >= tau of two rows of the table, without a division; two empty sets have theta = 0."""
    return int(np.count_nonzero(a ^ b)) >= tau * max(int(np.count_nonzero(a | b)), 1)


def deviation(a, b, ngram=1):
    """theta = 1 - |N(a) & N(b)| / |N(a) | N(b)| of two responses (Eq. 7): 0 same n-grams, 1 none shared."""
    a, b = ngram_table([a, b], ngram)
    return int(np.count_nonzero(a ^ b)) / max(int(np.count_nonzero(a | b)), 1)


def align(kept, advantages, divisor):
    """Add trajectories back until their number divides by divisor or none is left (Algorithm 1).

    One per question and pass, in question order: the unselected one of highest |A| (ties: lower index).
    kept [[0], [1]], advantages [[1, -1, 2], [0, 3]], divisor 4 -> [[0, 2], [0, 1]]
    """
    if divisor < 1:
        raise ValueError(f"divisor={divisor}: use 1 (no alignment) or more, e.g. ranks x updates per step")
    aligned = [sorted(indices) for indices in kept]
    missing = -sum(len(indices) for indices in aligned) % divisor
    spare = []                                                 # per question: what may come back, best first
    for indices, values in zip(aligned, advantages, strict=True):
        rest = [i for i in range(len(values)) if i not in indices]
        spare.append(sorted(rest, key=lambda i, values=values: (-abs(float(values[i])), i)))
    passes = max((len(rest) for rest in spare), default=0)
    turns = [(q, rest[turn]) for turn in range(passes) for q, rest in enumerate(spare) if turn < len(rest)]
    for q, i in turns[:missing]:
        aligned[q].append(i)
    return [sorted(indices) for indices in aligned]


def deal(costs, owners, ranks):
    """Rows of one update -> those of each rank: equal numbers if they divide, balanced costs, whole groups.

    costs: tokens of each row; owners: its question. Rows of a question share its prompt and so stay on one
    rank as far as equal numbers allow. costs [9, 9, 2, 1], owners [0, 0, 1, 1], 2 ranks -> [[0, 1], [2, 3]]
    """
    groups = {}
    for row, owner in enumerate(owners):
        groups.setdefault(owner, []).append(row)
    share = -(-len(costs) // ranks)                            # rows a rank can take
    hands, loads = [[] for _ in range(ranks)], [0] * ranks
    for group in sorted(groups.values(), key=lambda rows: -sum(costs[row] for row in rows)):
        while group:
            hand = min((i for i in range(ranks) if len(hands[i]) < share), key=lambda i: loads[i])
            taken, group = group[:share - len(hands[hand])], group[share - len(hands[hand]):]
            hands[hand] += taken
            loads[hand] += sum(costs[row] for row in taken)
    return hands
