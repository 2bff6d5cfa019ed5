"""How many responses to sample, and to which questions: ARS, with GRESO and DAPO as baselines.

ARS, adaptive rollout sampling (Eq. 10-14): if pruning keeps fewer than in the first epoch, responses are more
alike, and G falls at the next epoch. Early the question that keeps most decides, then the average."""
import copy

class AdaptiveRollouts:
    """.rollouts is the G to sample with now, between 2 (the fewest with a spread) and the initial number.
    initial 8, total_steps 10, five steps an epoch, each keeping [8, 4, 4, 4] (mean 5, max 8):
    end_epoch(5): alpha 0.5, G' = 0.5 * 5 + 0.5 * 8 = 6.5, G_ref = (5 + 8) / 2 = 6.5 -> 8
    end_epoch(10): alpha 1, G' = 5, 1.5 below G_ref; 8 - 1.5 = 6.5 rounds half to even -> 6"""
    def __init__(self, initial, total_steps):
        self.initial, self.total_steps, self.rollouts = initial, total_steps, initial
        self.reference = None            # G_ref, set at the first boundary, then fixed
        self.means, self.maxes = [], []  # one entry per step of the current epoch

    def record(self, kept_counts):
        """After a step: the number of kept trajectories of each of its questions, after alignment."""
        counts = [int(count) for count in kept_counts]
        if counts:  # a step that trained on nothing has no mean
            self.means.append(sum(counts) / len(counts))
            self.maxes.append(max(counts))

    def end_epoch(self, step):
        """After an epoch's last step -> G of the next epoch. step: steps done since the start of the run."""
        if self.means:
            mean, most = sum(self.means) / len(self.means), sum(self.maxes) / len(self.maxes)
            self.means, self.maxes = [], []
            alpha = min(step / self.total_steps, 1.0)
            current = alpha * mean + (1 - alpha) * most  # G', Eq. 10-11
            self.reference = (mean + most) / 2 if self.reference is None else self.reference  # G_ref, Eq. 12
            self.rollouts = max(round(self.initial - max(self.reference - current, 0)), 2)  # Eq. 13-14
        return self.rollouts

    def state_dict(self):
        return {key: value for key, value in copy.deepcopy(vars(self)).items() if key != 'total_steps'}

    def load_state_dict(self, state):
        vars(self).update(copy.deepcopy(state))

class PromptFilter:
    """GRESO: questions whose last z visits were easy (answers all right, rewards >= 0.98) or hard (all wrong,
    <= 0.11) are skipped before any rollout with P = 1 - max(p ** z, 0.01), with a rate p for each of the two.
    observe('a', [1, 1]) twice gives 1 - 0.5 ** 2. Unseen questions and mixed answers are never skipped.
    Departure: released code bounds the mean reward of 8 answers, which is the same for 8 but not for 16."""
    def __init__(self, target=0.25):
        self.targets = {'easy': target / 3, 'hard': 2 * target / 3}  # wanted shares of sampled questions
        self.rates = {'easy': 0.5, 'hard': 0.5}
        self.streaks = {}                                      # id -> z, negative for hard visits, 0: mixed
        self.counts = {'easy': 0, 'hard': 0, 'all': 0}         # of questions sampled in this step

    def skip_probability(self, id):
        z = self.streaks.get(str(id), 0)
        return 1 - max(self.rates['easy' if z > 0 else 'hard'] ** abs(z), 0.01)

    def observe(self, id, rewards):
        """After a rollout of question `id`: the accuracies of its G answers."""
        kind = 'easy' if min(rewards) >= 0.98 else 'hard' if max(rewards) <= 0.11 else None
        sign, z = {'easy': 1, 'hard': -1, None: 0}[kind], self.streaks.get(str(id), 0)
        self.streaks[str(id)] = sign + (z if z * sign > 0 else 0)
        self.counts = {key: count + (key in (kind, 'all')) for key, count in self.counts.items()}

    def end_step(self, epoch=1):
        """After a training step, from the second epoch on: skip more of a kind that is sampled too often."""
        for kind, target in self.targets.items() if epoch > 0 and self.counts['all'] else ():
            change = -0.01 if self.counts[kind] / self.counts['all'] >= target else 0.01
            self.rates[kind] = min(max(self.rates[kind] + change, 0.05), 0.95)
        self.counts = dict.fromkeys(self.counts, 0)

    state_dict, load_state_dict = AdaptiveRollouts.state_dict, AdaptiveRollouts.load_state_dict

def informative(accuracies):
    """DAPO's dynamic sampling keeps a question whose mean accuracy is between 0.01 and 0.99, exclusively."""
    return 0.01 < sum(accuracies) / len(accuracies) < 0.99

def refill_size(missing, flat_share, rollouts, default, least=64):
    """GRESO: questions to sample next: 448 trajectories missing, flat_share 0.5, 8 rollouts, 384 -> 140."""
    expected = int(1.25 * missing / (1 - flat_share) / rollouts) if flat_share < 1 else default
    return max(min(expected, default), min(least, default))
