"""ARS, adaptive rollout sampling: how many responses to sample to each question, one number G for all.

In: after every step, how many trajectories of each question were kept. Out: at every epoch boundary, a new G.
When pruning keeps fewer than in the first epoch, responses have become more alike, and sampling as many as
before is waste (Eq. 10-14). Early in the run the question that keeps most decides, later the average one.
"""
import copy


class AdaptiveRollouts:
    """.rollouts is the G to sample with now, between 2 (the fewest with a spread) and the initial number.

    initial 8, total_steps 10, five steps an epoch, each keeping [8, 4, 4, 4] (mean 5, max 8):
    end_epoch(5):  alpha 0.5, G' = 0.5 * 5 + 0.5 * 8 = 6.5, G_ref = (5 + 8) / 2 = 6.5        -> G = 8
    end_epoch(10): alpha 1.0, G' = 5, 1.5 below G_ref; 8 - 1.5 = 6.5 rounds half to even     -> G = 6
    """

    def __init__(self, initial, total_steps):
        if initial < 2 or total_steps < 1:
            raise ValueError(f'initial = {initial}, total_steps = {total_steps}: a group needs at least 2 '
                             'rollouts, one has no advantage, and a run at least 1 step')
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
        if not self.means:
            return self.rollouts
        mean, most = sum(self.means) / len(self.means), sum(self.maxes) / len(self.maxes)
        self.means, self.maxes = [], []
        alpha = min(step / self.total_steps, 1.0)
        current = alpha * mean + (1 - alpha) * most     # G', Eq. 10-11
        if self.reference is None:
            self.reference = (mean + most) / 2          # G_ref, Eq. 12
        self.rollouts = self.initial
        if current < self.reference:                    # Eq. 13-14
            self.rollouts = max(round(min(self.initial - (self.reference - current), self.initial)), 2)
        return self.rollouts

    def state_dict(self):
        return {key: value for key, value in copy.deepcopy(vars(self)).items() if key != 'total_steps'}

    def load_state_dict(self, state):
        vars(self).update(copy.deepcopy(state))
