"""MDAP, maximizing differential advantage pruning: which trajectories of a question are worth training on.

In: one question's response token ids and advantages. Out: the indices to keep, before any log-prob pass.
Trajectories of equal advantage (Eq. 6) whose responses share most n-grams (Eq. 7) give nearly the same
gradient; a greedy walk per group keeps those that differ enough from every one already kept (Eq. 8). align()
then adds a few back until the batch divides evenly (Algorithm 1). Departures: "equal" is less than eps apart,
transitively, which covers continuous rewards; deviation and tau are compared as exact fractions, since in
floats 1 - 4/5 < 0.2 and a pair exactly at tau would be lost.
"""
from fractions import Fraction


def select(responses, advantages, tau, ngram=1, eps=1e-4):
    """One question: lists of token ids without padding, and their advantages -> kept indices, ascending.

    responses [[5, 6, 7, 8], [5, 6, 7, 9]], advantages [1, 1]: 3 of 5 distinct ids are shared, deviation 0.4,
    so tau = 0.4 -> [0, 1] and tau = 0.5 -> [0]; with advantages [1, -1] both stay at any tau.
    tau = 0 keeps everything (plain GRPO), tau > 1 one per group; at least one per group always survives.
    """
    if len(responses) != len(advantages):
        raise ValueError(f'{len(responses)} responses, {len(advantages)} advantages: pass one per trajectory')
    if ngram < 1:
        raise ValueError(f"ngram={ngram}: use 1 (single token ids, the paper's runs) or more")
    advantages = [float(a) for a in advantages]
    tau = Fraction(round(tau * 10**6), 10**6)                  # the decimal that was meant, not its float
    if tau <= 0:
        return list(range(len(responses)))
    kept = []
    for group in advantage_groups(advantages, eps):
        group.sort(key=lambda i: (-abs(advantages[i]), i))
        sets, chosen = {i: ngrams(responses[i], ngram) for i in group}, []
        for i in group:
            pairs = (spread(sets[i], sets[j]) for j in chosen)
            if all(different >= tau * max(union, 1) for different, union in pairs):  # theta >= tau
                chosen.append(i)
        kept += chosen
    return sorted(kept)


def advantage_groups(advantages, eps=1e-4):
    """Indices of equal advantage, highest first (Eq. 6). Neighbours less than eps apart chain into one group.

    advantages [1.0, -1.0, 1.00005, 1.0001], eps 1e-4 -> [[0, 2, 3], [1]]
    """
    groups, last = [], float('inf')
    for i in sorted(range(len(advantages)), key=lambda i: -advantages[i]):
        if last - advantages[i] >= eps:
            groups.append([])
        groups[-1].append(i)
        last = advantages[i]
    return [sorted(group) for group in groups]


def ngrams(ids, n=1):
    """The set of distinct n-grams of one response; [5, 6, 5], n = 2 -> {(5, 6), (6, 5)}."""
    ids = ids.tolist() if hasattr(ids, 'tolist') else ids
    return set(ids) if n == 1 else set(zip(*(ids[i:] for i in range(n))))


def spread(a, b):
    """Sizes of the symmetric difference and of the union of two sets: theta is their quotient."""
    shared = len(a & b)
    return len(a) + len(b) - 2 * shared, len(a) + len(b) - shared


def deviation(a, b, ngram=1):
    """theta = 1 - |N(a) & N(b)| / |N(a) | N(b)| of two responses (Eq. 7): 0 same n-grams, 1 none shared."""
    different, union = spread(ngrams(a, ngram), ngrams(b, ngram))
    return different / max(union, 1)


def align(kept, advantages, divisor):
    """Add trajectories back until their number divides by divisor or none is left (Algorithm 1).

    One per question and pass, in question order: the unselected one of highest |A| (ties: lower index).
    kept [[0], [1]], advantages [[1, -1, 2], [0, 3]], divisor 4 -> [[0, 2], [0, 1]]
    """
    if divisor < 1:
        raise ValueError(f"divisor={divisor}: use 1 (no alignment) or more, e.g. ranks x updates per step")
    aligned = [list(indices) for indices in kept]
    missing = -sum(len(indices) for indices in aligned) % divisor
    turns = []                                                 # (turn, question, what comes back then)
    for q, (indices, values) in enumerate(zip(kept, advantages, strict=True)):
        rest = sorted(set(range(len(values))) - set(indices), key=lambda i, A=values: (-abs(float(A[i])), i))
        turns += [(turn, q, i) for turn, i in enumerate(rest)]
    for _, q, i in sorted(turns)[:missing]:
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
