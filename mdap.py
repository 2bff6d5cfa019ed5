"""Which trajectories of a question are worth training on: MDAP, the baselines it is compared with, the deal.

MDAP, maximizing differential advantage pruning, before any log-prob pass: trajectories of equal advantage
(Eq. 6) whose responses share most n-grams (Eq. 7) give nearly the same gradient; a greedy walk per group
keeps those that differ enough from every one already kept (Eq. 8). align() adds a few back (Algorithm 1).
Departures: "equal" is less than eps apart, transitively, which covers continuous rewards; deviations are
exact fractions, since in floats 1 - 4/5 < 0.2 and a pair exactly at tau would be lost."""
from fractions import Fraction

import torch

def select(responses, advantages, tau, ngram=1, eps=1e-4):
    """One question: lists of token ids without padding, and their advantages -> kept indices, ascending.
    responses [[5, 6, 7, 8], [5, 6, 7, 9]], advantages [1, 1]: 3 of 5 distinct ids are shared, deviation 0.4,
    so tau 0.4 -> [0, 1], 0.5 -> [0]; advantages [1, -1]: both stay. tau 0: all (GRPO), > 1: one a group."""
    tau = Fraction(round(tau * 10**6), 10**6)                  # the decimal that was meant, not its float
    kept, sets = [], [ngrams(ids, ngram) for ids in responses]
    for group in advantage_groups(advantages, eps):
        for i in sorted(group, key=lambda i: -abs(advantages[i])):
            if all(deviation(sets[i], sets[j]) >= tau for j in {*group} & {*kept}):
                kept.append(i)
    return sorted(kept)

def advantage_groups(advantages, eps=1e-4):
    """Indices of equal advantage, highest first (Eq. 6). Neighbours less than eps apart chain into one group.
    advantages [1.0, -1.0, 1.00005, 1.0001], eps 1e-4 -> [[0, 2, 3], [1]]"""
    groups = []
    for i in sorted(range(len(advantages)), key=lambda i: -advantages[i]):
        if not groups or advantages[groups[-1][-1]] - advantages[i] >= eps:
            groups.append([])
        groups[-1].append(i)
    return [sorted(group) for group in groups]

def ngrams(ids, n=1):
    """The set of distinct n-grams of one response; [5, 6, 5], n = 2 -> {(5, 6), (6, 5)}."""
    return set(ids) if n == 1 else set(zip(*(ids[i:] for i in range(n))))

def deviation(a, b):
    """theta = 1 - |a & b| / |a | b| of two n-gram sets (Eq. 7): 0 the same (or both empty), 1 none shared."""
    shared = len(a & b)
    return 1 - Fraction(shared, len(a) + len(b) - shared) if a or b else Fraction(0)

def cppo(advantages, rate):
    """CPPO: k of largest |A| (ties: lower index). Per question, as in the paper; its code ranks the batch."""
    k = max(1, int(len(advantages) * (1 - rate)))              # as published: 20 and 0.9 give 1, in floats
    return sorted(sorted(range(len(advantages)), key=lambda i: -abs(advantages[i]))[:k])

def random_prune(n, rate, generator):
    """As many of n trajectories as cppo() keeps, drawn at random: the control for every rule -> ascending."""
    return sorted(torch.randperm(n, generator=generator)[:max(1, int(n * (1 - rate)))].tolist())

def advantage_only(advantages, generator, eps=1e-4):
    """One random trajectory of each advantage group: what is left of MDAP without deviations -> ascending."""
    return sorted(group[int(torch.randint(len(group), (), generator=generator))]
                  for group in advantage_groups(advantages, eps))

def align(kept, advantages, divisor):
    """Add trajectories back until their number divides by divisor or none is left (Algorithm 1).
    One per question and pass, in question order: the unselected one of highest |A| (ties: lower index).
    kept [[0], [1]], advantages [[1, -1, 2], [0, 3]], divisor 4 -> [[0, 2], [0, 1]]"""
    missing = -sum(len(indices) for indices in kept) % divisor
    rests = [sorted({*range(len(A))} - {*indices}, key=lambda i, A=A: (-abs(A[i]), i))
             for indices, A in zip(kept, advantages, strict=True)]
    back = sorted((turn, q, i) for q, rest in enumerate(rests) for turn, i in enumerate(rest))[:missing]
    return [sorted([*indices, *(i for _, q, i in back if q == own)]) for own, indices in enumerate(kept)]

def deal(costs, owners, ranks):
    """Rows of one update -> those of each rank: equal numbers if they divide, balanced costs (tokens), rows
    of an owner (question) together: they share a prompt. [9, 9, 2, 1], [0, 0, 1, 1], 2 -> [[0, 1], [2, 3]]"""
    groups = [[row for row, other in enumerate(owners) if other == owner] for owner in dict.fromkeys(owners)]
    share = -(-len(costs) // ranks)                            # rows a rank can take
    hands = [[] for _ in range(ranks)]
    for group in sorted(groups, key=lambda rows: -sum(costs[row] for row in rows)):
        while group:
            hand = min((h for h in hands if len(h) < share), key=lambda h: sum(costs[row] for row in h))
            taken, group = group[:share - len(hand)], group[share - len(hand):]
            hand += taken
    return hands
