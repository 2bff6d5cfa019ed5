"""Every method of the paper's tables, from its config files: what is sampled, trained on, refused.

Rewards are replaced by ones that do not depend on what a hardly trained toy can do (helpers.COIN).
"""
import itertools
import json
import math
import re

import pytest
from helpers import (
    COIN,
    COUNT_ROWS,
    ROOT,
    SHARED,
    distance,
    needs_samples,
    passes,
    read_log,
    run_train,
    subset,
    without_times,
)

from data import prepare

BASES = ['grpo', 'dapo', 'gspo']
PLUGINS = [None, 'cppo', 'greso', 'fastrl']
# before= of launch
ALWAYS = '''
import reward
reward.KINDS['math'] = lambda response, question: {'reward': RIGHT + 0.5, 'format': 0.5, 'accuracy': RIGHT}
'''


def files(*names):
    return [f'config/{name}.py' for name in names if name]


def steps(out):
    return read_log(out)[2:]


# -------------------------------------------------------------------------------------------------- Table 1

def runs(base, plugin, small, launch, level, out):
    """Three steps of one row of Table 1: it trains, on what the method says, and nothing is broken."""
    text = launch(*files(base, plugin), *small, '--max_steps=3', '--learning_rate=1e-4',
                  '--rollouts_per_question=8', '--updates_per_step=1', f'--out_dir={out}', before=COIN)
    assert 'warning' not in text
    assert read_log(out)[0]['config']['ratio'] == ('sequence' if base == 'gspo' else 'token')
    log = steps(out)
    assert [record['step'] for record in log] == [1, 2, 3]
    for record in log:
        assert all(math.isfinite(value) for value in record.values())
        assert record['updates'] == 1 and record['loss/grad_norm'] > 0
        trained = record['trajectories_trained']
        assert trained == {None: 48, 'greso': 48, 'cppo': 24}.get(plugin, trained) and trained <= 48
        assert (trained < 48) == (plugin in ('cppo', 'fastrl'))
        assert (record['refills'] > 0) == (record['trajectories_sampled'] > 48)
        assert (record['loss/kl'] > 0) == (base == 'grpo' and record['step'] > 1) or record['step'] == 1
    assert any(record['refills'] for record in log) == (base == 'dapo')
    assert distance(f'{out}/latest', level / 'warm_start') > 1e-5


@pytest.mark.parametrize('base, plugin', [('dapo', 'fastrl'), ('gspo', 'cppo')])
def test_two_rows_of_table_1(base, plugin, small, launch, level, tmp_path):
    runs(base, plugin, small, launch, level, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize('base', BASES)
@pytest.mark.parametrize('plugin', PLUGINS)
def test_all_rows_of_table_1(base, plugin, small, launch, level, tmp_path):
    runs(base, plugin, small, launch, level, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize('base', BASES)
@pytest.mark.parametrize('plugin', PLUGINS)
def test_all_rows_of_table_1_as_a_user_types_them(base, plugin, tmp_path):
    """On the real toy, with its own rewards: accuracy after 8 steps is not below that of the start."""
    run_train(*files('toy', base, plugin), '--max_steps=8', '--eval_questions=100', f'--out_dir={tmp_path}',
              '--questions_per_step=16', timeout=600)
    start, end = read_log(tmp_path)[1], read_log(tmp_path)[-1]
    assert end['step'] == 8 and end['eval/sampled'] > start['eval/sampled'] - 0.1


def test_files_differ_in_the_method_only():
    """The difference between two methods is the difference between two files: same keys, same order."""
    def settings(name):
        code = {}
        exec(open(f'config/{name}.py').read(), code)
        return {key: value for key, value in code.items() if key != '__builtins__'}
    assert len({tuple(settings(base)) for base in BASES}) == 1
    plugged = [settings(name) for name in ('fastrl', 'cppo', 'greso', 'random_prune', 'advantage_only',
                                           'no_mdap', 'no_ars')]
    for values in plugged:
        assert {'pruning', 'adaptive_rollouts'} <= set(values) <= {
            'pruning', 'adaptive_rollouts', 'greso', 'tau', 'prune_rate'}
        assert set(values) - {'tau', 'prune_rate'} < set(settings('grpo'))
    assert len({json.dumps(values, sort_keys=True) for values in plugged}) == 7


# ------------------------------------------------------------------------------------------- dynamic sampling

def test_refill_over_ranks(small, launch, level, tmp_path):
    """DAPO: every trained group has right and wrong answers, exactly questions_per_step of them; the surplus
    goes; two ranks sample and train what one does."""
    flags = [*files('dapo'), *small, '--questions_per_step=5', '--align=10', '--learning_rate=5e-5']
    for processes in (1, 2):
        launch(*flags, f'--out_dir={tmp_path}/{processes}', processes=processes, before=COIN + NOTE_GROUPS
               + f'FILE = {str(tmp_path / f"groups{processes}-")!r}\n')
    groups = passes(tmp_path / 'groups1-')
    assert len(groups) == 2 * 5 and all(len(set(group)) > 1 and len(group) == 4 for group in groups)
    for record in steps(tmp_path / '1'):
        assert record['refills'] > 0 and record['trajectories_trained'] == 20
        assert record['trajectories_sampled'] == 20 * (1 + record['refills'])
        assert record['prune/flat_groups'] > 0.3, 'the collapse rate is that of all sampled groups'
    for a, b in zip(without_times(read_log(tmp_path / '1')), without_times(read_log(tmp_path / '2'))):
        assert a == pytest.approx(b, rel=1e-3, abs=1e-5)
    assert distance(tmp_path / '1/latest', tmp_path / '2/latest') < 5e-5
    assert passes(tmp_path / 'groups2-', 1) == groups


# before= of launch: one line per question of the advantages that are pruned
NOTE_GROUPS = '''
import json, mdap
align = mdap.align
def noted(kept, advantages, divisor):
    with open(FILE + str(RANK), 'a') as file:
        file.writelines(json.dumps([round(a, 6) for a in group]) + '\\n' for group in advantages)
    return align(kept, advantages, divisor)
mdap.align = noted
'''


@pytest.mark.parametrize('right, processes', [(0.0, 1), (1.0, 2)])
@pytest.mark.parametrize('plugin', [None, 'greso', 'fastrl'])
def test_no_signal_ends_with_what_was_seen(right, processes, plugin, small, launch, level, tmp_path):
    """D4: rewards that are always 0 or 1 end after max_refills, with the accuracy and a saved checkpoint."""
    text = launch(*files('dapo', plugin), *small, '--max_refills=3', f'--out_dir={tmp_path}', ok=False,
                  processes=processes, before=f'RIGHT = {right}\n' + ALWAYS)
    error, = (line for line in text.splitlines() if line.startswith('error: '))
    assert 'step 1: after max_refills = 3 only 0 of 6' in error and f'{right:.3f}' in error
    assert 'dynamic_sampling = False' in error and 'Traceback' not in text
    assert text.count('refill ') == 4 and 'refill 2: 0 of 6 questions have right and wrong answers' in text
    assert distance(tmp_path / 'latest', level / 'warm_start') == 0


def test_what_a_failed_step_saw_is_not_counted(small, launch, level, tmp_path):
    """The checkpoint of such an end is that before the step: no question counts twice after a resume."""
    flags = [*files('dapo', 'greso'), *small, f'--out_dir={tmp_path}']
    launch(*flags, '--max_refills=1', ok=False, before='RIGHT = 0.0\n' + ALWAYS)
    state = json.loads((tmp_path / 'latest/state.json').read_text())
    assert state['greso']['streaks'] == {} and state['greso']['counts']['all'] == state['drawn'] == 0
    launch(*flags, '--init_from=resume', '--max_refills=19', before=COIN)
    assert [record['step'] for record in read_log(tmp_path)[1:]] == [0, 1, 2]


@pytest.mark.parametrize('case', [pytest.param(case, id=case['name']) for case in json.loads(
    (ROOT / 'tests/golden/dapo.json').read_text())['cases'] if case['kind'] == 'batch_assembly'])
def test_batch_assembly_matches_reference_values(case, small, launch, tmp_path):
    """Rounds are sampled until enough questions are informative, the surplus goes, or there is an error."""
    inputs, expected = case['inputs'], case['expected']
    limit, target = inputs['max_try_make_batch'], inputs['target_prompts']
    tries, ok = limit if limit > 0 else 99, expected['status'] == 'ok'  # 0: no limit
    before = f"""
import ars
kept, seen = {inputs['kept_prompts_per_round']}, []
def informative(accuracies):
    seen.append(accuracies)
    place = len(seen) - 1
    return place % {target} < kept[min(place // {target}, len(kept) - 1)]
ars.informative = informative
"""
    text = launch(*files('dapo'), *small, f'--questions_per_step={target}', '--rollouts_per_question=2',
                  '--max_response_tokens=1', f'--max_refills={tries - 1}', '--max_steps=1',
                  '--updates_per_step=1', f'--out_dir={tmp_path}', before=before, ok=ok)
    if ok:
        record, = steps(tmp_path)
        assert record['refills'] + 1 == expected['rounds_used']
        trajectories = record['prune/kept_mean'] * target / 2 * inputs['rollout_n']
        assert trajectories == expected['trajectories_returned']
    else:
        assert f'only {expected["collected_prompts"]} of {target} questions' in text
        assert text.count('refill ') == expected['rounds_used'] == tries


def test_an_epoch_ends_when_its_data_end(small, launch, level, tmp_path):
    """D8: refills eat data, so two epochs of 24 questions have fewer steps than 2 x 24 / 4, and say how many;
    ARS is called when data end, not steps, and its alpha reaches 1."""
    data = subset(level, tmp_path / 'data.parquet', 24)
    note = COIN + f'FILE = {str(tmp_path / "ends")!r}\n' + '''
import ars
end = ars.AdaptiveRollouts.end_epoch
def noted(self, step):
    with open(FILE + str(RANK), 'a') as file:
        file.write(f'{step / self.total_steps}\\n')
    return end(self, step)
ars.AdaptiveRollouts.end_epoch = noted
'''
    text = launch(*files('dapo', 'fastrl'), *small, f'--dataset={data}', '--questions_per_step=4',
                  '--max_steps=0', '--epochs=2', '--eval_every=0', f'--out_dir={tmp_path}/out', before=note)
    log = steps(tmp_path / 'out')
    drawn = list(itertools.accumulate(record['trajectories_sampled'] // 4 for record in log))
    assert 48 <= drawn[-1] < 48 + 4 * (1 + log[-1]['refills']) and 2 <= len(log) < 12
    assert f'done: {sum(record["updates"] for record in log)} updates, best accuracy' in text
    assert 'eval/accuracy' in log[-1] and (tmp_path / 'out/latest').is_dir()
    first = next(number for number in drawn if number >= 24)
    assert passes(tmp_path / 'ends') == pytest.approx([first / 48, drawn[-1] / 48])


def test_the_surplus_goes_and_seeds_are_new(small, launch, tmp_path):
    """The first questions with a signal are trained on, in order; refills do not repeat random numbers, and
    take the size that GRESO says, from what is missing and the share without signal."""
    before = f'FILE = {str(tmp_path / "noted")!r}\n' + '''
import ars, json, mdap, rollout
deal, generate, calls = mdap.deal, rollout.generate, []
def note(name, value):
    with open(FILE + name + str(RANK), 'a') as file:
        file.write(json.dumps(value) + '\\n')
def informative(accuracies):
    calls.append(accuracies)
    return len(calls) not in (1, 3, 4)  # of six questions; then all
def size(missing, flat, G, default):
    note('size', [missing, G, default, flat])
    return 4
def noted_deal(costs, owners, ranks):
    note('slots', owners)
    return deal(costs, owners, ranks)
def noted_generate(policy, processor, prompts, count, ends, seeds, *sizes, **settings):
    if count == 4:
        note('seeds', seeds)
    return generate(policy, processor, prompts, count, ends, seeds, *sizes, **settings)
ars.informative, ars.refill_size, mdap.deal, rollout.generate = informative, size, noted_deal, noted_generate
import reward
reward.KINDS['math'] = lambda response, question: {
    'reward': len(response), 'format': 0.5, 'accuracy': float(len(response) > 0)}
'''
    launch(*files('dapo', 'greso'), *small, '--max_steps=1', '--updates_per_step=1',
           f'--out_dir={tmp_path}/out', before=before)
    assert set(passes(tmp_path / 'notedslots')[0]) == {1, 4, 5, 6, 7, 8}
    seeds = passes(tmp_path / 'notedseeds')
    assert [len(row) for row in seeds] == [6, 4] and len(set(sum(seeds, []))) == 10
    assert [row[:3] for row in passes(tmp_path / 'notedsize')] == [[12, 4, 6]]
    assert steps(tmp_path / 'out')[0]['trajectories_sampled'] == 40


def test_refills_resume_exactly(small, launch, level, tmp_path):
    """C1: the place in the data is that of questions drawn, not of steps."""
    flags = [*files('dapo', 'greso'), *small, '--max_steps=4', '--questions_per_step=4', '--save_every=2',
             f'--dataset={subset(level, tmp_path / "data.parquet", 12)}', '--learning_rate=2e-4']
    launch(*flags, f'--out_dir={tmp_path}/whole', before=COIN)
    log = without_times(steps(tmp_path / 'whole'))
    assert log[-1]['epoch'] > 1 and sum(record['questions_skipped'] for record in log) > 0
    (tmp_path / 'whole/latest').unlink()
    (tmp_path / 'whole/latest').symlink_to('step_000002')
    (tmp_path / 'whole/step_000004').rename(tmp_path / 'end')
    launch(*flags, f'--out_dir={tmp_path}/whole', '--init_from=resume', before=COIN)
    assert without_times(steps(tmp_path / 'whole')) == log
    assert distance(tmp_path / 'whole/step_000004', tmp_path / 'end') == 0
    ours, theirs = (json.loads((folder / 'state.json').read_text())
                    for folder in (tmp_path / 'whole/step_000004', tmp_path / 'end'))
    assert ours['greso'] == theirs['greso'] and ours['greso']['streaks'] and ours['drawn'] == theirs['drawn']


# --------------------------------------------------------------------------------------------------- GRESO

def test_greso_skips_before_rollout(small, launch, level, tmp_path):
    """Questions whose last answers were all right or all wrong come back less often than the others; ranks
    share one history; nothing is skipped in the first epoch; rates move from the second on."""
    data = subset(level, tmp_path / 'data.parquet', 12)
    flags = [*files('greso'), *small, f'--dataset={data}', '--questions_per_step=4', '--max_steps=18',
             '--learning_rate=0', '--eval_questions=1']
    for processes in (1, 2):
        launch(*flags, f'--out_dir={tmp_path}/{processes}', processes=processes, before=COIN)
    log = without_times(steps(tmp_path / '1'))
    skipped = [record['questions_skipped'] for record in log]
    assert skipped[:3] == [0, 0, 0] and sum(skipped) > 20
    assert all(record['trajectories_sampled'] == 16 for record in log)
    flat = [record['prune/flat_groups'] for record in log]
    assert sum(flat[6:]) / 12 < sum(flat[:3]) / 3 - 0.1
    states = [json.loads((tmp_path / name / 'latest/state.json').read_text())['greso'] for name in '12']
    assert states[0] == states[1] and states[0]['rates']['easy'] != 0.5
    launch(*flags, '--max_steps=3', f'--out_dir={tmp_path}/3', before=COIN)
    assert json.loads((tmp_path / '3/latest/state.json').read_text())['greso']['rates'] == {
        'easy': 0.5, 'hard': 0.5}
    assert {record['step']: record['questions_skipped'] for record in log} == {
        record['step']: record['questions_skipped'] for record in steps(tmp_path / '2')}


# ------------------------------------------------------------------------------------- what is trained on

@pytest.mark.parametrize('plugin, kept', [
    ('cppo', 24), ('random_prune', 24), ('no_mdap', 48), ('no_ars', None)])
def test_pruned_before_any_pass(plugin, kept, small, launch, tmp_path):
    """Old, reference and update passes see the kept trajectories once, with the same number of updates."""
    launch(*files('grpo', plugin), *small, '--rollouts_per_question=8', '--old_logps=recompute',
           f'--out_dir={tmp_path}/out', before=COIN + f'FILE = {str(tmp_path / "passes")!r}\n' + COUNT_ROWS)
    seen, log = passes(tmp_path / 'passes'), steps(tmp_path / 'out')
    trained = [record['trajectories_trained'] for record in log]
    assert trained == [kept, kept] if kept else max(trained) < 24
    for kind in ('old', 'ref', 'update'):
        assert sum(line[1] for line in seen if line[0] == kind) == sum(trained), kind
    assert sum(line[0] == 'step' for line in seen) == 4


@pytest.mark.parametrize('rate, kept', [(0.25, 36), (0.5, 24), (0.75, 12)])
def test_random_prune_rates(rate, kept, small, launch, tmp_path):
    """Table 5: 25, 50, 75 %; another seed keeps others."""
    flags = [*files('random_prune'), *small, '--rollouts_per_question=8', '--max_steps=1',
             '--updates_per_step=1']
    launch(*flags, f'--prune_rate={rate}', f'--out_dir={tmp_path}', before=COIN)
    assert steps(tmp_path)[0]['trajectories_trained'] == kept


def test_advantage_only_keeps_one_of_each(small, launch, tmp_path):
    """Table 5: two trajectories of a question with right and wrong answers, one of any other."""
    launch(*files('advantage_only'), *small, '--updates_per_step=1', f'--out_dir={tmp_path}', before=COIN)
    for record in steps(tmp_path):
        assert record['trajectories_trained'] == pytest.approx(6 * (2 - record['prune/flat_groups']))


def test_without_mdap_ars_still_counts(small, launch, level, tmp_path):
    """Table 2: all are trained on, and yet G falls as MDAP would keep fewer; plain GRPO stays at G."""
    data = subset(level, tmp_path / 'data.parquet', 12)
    flags = [*small, f'--dataset={data}', '--rollouts_per_question=8', '--max_steps=4', '--eval_questions=1',
             '--updates_per_step=1']
    shrink = COIN + '''
import ars
record = ars.AdaptiveRollouts.record
def fewer(self, counts):
    assert max(counts) < 8, 'these are not the counts of MDAP'
    record(self, [2] * len(counts) if self.reference else [6] * len(counts))
ars.AdaptiveRollouts.record = fewer
'''
    launch(*files('no_mdap'), *flags, f'--out_dir={tmp_path}/out', before=shrink)
    log = steps(tmp_path / 'out')
    assert [record['rollouts_per_question'] for record in log] == [8, 8, 8, 8]
    assert all(record['trajectories_trained'] == record['trajectories_sampled'] for record in log)
    launch(*files('no_mdap'), *flags, '--max_steps=6', f'--out_dir={tmp_path}/more', before=shrink)
    assert [record['rollouts_per_question'] for record in steps(tmp_path / 'more')] == [8, 8, 8, 8, 4, 4]


@pytest.mark.parametrize('average', ['token', 'seq'])
def test_flat_groups_carry_nothing(average, small, launch, level, tmp_path):
    """With beta = 0 a run that leaves them out ends with the parameters of one that trains on them."""
    flags = [*small, '--tau=0.3', '--rollouts_per_question=8', f'--average={average}', '--updates_per_step=3',
             '--learning_rate=5e-5', '--weight_decay=0.1', '--tokens_per_microbatch=300']
    for drop in ('false', 'true'):
        launch(*flags, f'--drop_flat_groups={drop}', f'--out_dir={tmp_path}/{drop}', before=COIN)
    assert distance(tmp_path / 'true/latest', tmp_path / 'false/latest') < 1e-6
    assert distance(tmp_path / 'true/latest', level / 'warm_start') > 1e-4
    for with_them, without in zip(steps(tmp_path / 'false'), steps(tmp_path / 'true')):
        assert without['trajectories_trained'] < with_them['trajectories_trained']
        assert with_them['prune/flat_groups'] == without['prune/flat_groups'] > 0
        assert with_them['loss/policy'] == pytest.approx(without['loss/policy'], abs=1e-6)


@pytest.mark.parametrize('flags', [
    [], ['--drop_flat_groups'], ['--mask_truncated', '--max_response_tokens=2']],
    ids=['flat', 'dropped', 'cut off'])
def test_a_run_without_signal_changes_nothing(flags, small, launch, level, tmp_path):
    """D7, L3: no decay, no moments, no 0 / 0; the log and the last line say that nothing was updated."""
    text = launch(*small, *flags, '--weight_decay=0.1', '--print_every=1', f'--out_dir={tmp_path}',
                  before='RIGHT = 1.0\n' + ALWAYS)
    assert distance(tmp_path / 'latest', level / 'warm_start') == 0
    assert 'done: 0 updates, ' in text
    for record in steps(tmp_path):
        assert record['updates'] == record['trajectories_trained'] == record['loss/grad_norm'] == 0
        assert record['prune/flat_groups'] == 1.0 and all(map(math.isfinite, record.values()))


def test_truncated_answers_leave_sum_and_count(small, launch, tmp_path):
    """L2: what was cut off is neither trained on nor counted, and can not be put back by alignment."""
    flags = [*small, '--pruning=none', '--max_response_tokens=15', '--max_steps=1',
             '--rollouts_per_question=8', '--updates_per_step=1']
    note = COIN + f'FILE = {str(tmp_path / "count")!r}\n' + '''
import losses
average = losses.average
def noted(values, mask, how='token', count=None):
    with open(FILE, 'a') as file:
        file.write(f'{how} {count}\\n')
    return average(values, mask, how, count)
losses.average = noted
'''
    launch(*flags, '--mask_truncated', f'--out_dir={tmp_path}/masked', before=note)
    launch(*flags, f'--out_dir={tmp_path}/all', before=COIN)
    masked, everything = steps(tmp_path / 'masked')[0], steps(tmp_path / 'all')[0]
    assert 0 < masked['rollout/truncated'] == everything['rollout/truncated'] < 1
    assert masked['trajectories_trained'] == round(48 * (1 - masked['rollout/truncated']))
    assert masked['rollout/length'] == everything['rollout/length'], 'statistics are those of all'
    counts = {int(line.split()[1]) for line in (tmp_path / 'count').read_text().splitlines()}
    assert sum(counts) == masked['tokens_trained'] < everything['tokens_trained']
    launch(*flags, '--mask_truncated', '--pruning=mdap', '--align=999', f'--out_dir={tmp_path}/back',
           before=COIN)
    assert steps(tmp_path / 'back')[0]['trajectories_trained'] == masked['trajectories_trained']


def test_ars_counts_what_is_trained_on(small, launch, tmp_path):
    """METHOD 3: the counts are those after alignment, one per question, zeros left out."""
    note = COIN + f'FILE = {str(tmp_path / "counts")!r}\n' + '''
import ars, json
record = ars.AdaptiveRollouts.record
def noted(self, counts):
    with open(FILE + str(RANK), 'a') as file:
        file.write(json.dumps(counts) + '\\n')
    record(self, counts)
ars.AdaptiveRollouts.record = noted
'''
    launch(*files('fastrl'), *small, '--align=10', '--updates_per_step=1', f'--out_dir={tmp_path}/out',
           before=note)
    counts = passes(tmp_path / 'counts')
    assert [sum(row) for row in counts] == [r['trajectories_trained'] for r in steps(tmp_path / 'out')]
    assert all(len(row) == 6 and sum(row) % 10 == 0 for row in counts)


def test_soft_overlong_punishment(small, launch, tmp_path):
    """DAPO: the last tokens cost up to overlong_factor, in reward and advantage; accuracy stays."""
    flags = [*files('dapo'), *small, '--max_steps=1', '--dynamic_sampling=false', '--max_response_tokens=16']
    for name, *more in (('off',), ('on', '--overlong_buffer=8', '--overlong_factor=2')):
        launch(*flags, *more, f'--out_dir={tmp_path}/{name}', before=COIN)
    off, on = steps(tmp_path / 'off')[0], steps(tmp_path / 'on')[0]
    assert off['reward/accuracy'] == on['reward/accuracy'] and off['rollout/truncated'] > 0
    assert off['reward/mean'] - 2 <= on['reward/mean'] <= off['reward/mean'] - 2 * off['rollout/truncated']
    assert on['prune/flat_groups'] < off['prune/flat_groups']


# ---------------------------------------------------------------------------------------------------- GSPO

@pytest.mark.parametrize('ratio', ['sequence', 'sequence_token'])
def test_gspo_does_not_depend_on_micro_batches(ratio, small, launch, level, tmp_path):
    """L1, L10: one ratio a sequence, every sequence of the update counts the same however it is cut, on one
    rank and on two; the token variant has the same gradient."""
    flags = [*files('gspo'), *small, '--align=8', '--learning_rate=5e-5', '--clip_low=0.2', '--clip_high=0.2']
    launch(*flags, f'--out_dir={tmp_path}/whole', before=COIN)
    flags.append(f'--ratio={ratio}')
    launch(*flags, '--tokens_per_microbatch=75', f'--out_dir={tmp_path}/cut', before=COIN)
    launch(*flags, '--tokens_per_microbatch=1', f'--out_dir={tmp_path}/two', before=COIN, processes=2)
    for name in ('cut', 'two'):
        assert distance(tmp_path / 'whole/latest', tmp_path / name / 'latest') < 5e-5
    assert distance(tmp_path / 'whole/latest', level / 'warm_start') > 1e-4


def test_doubtful_combinations_are_told(small, launch, tmp_path):
    """L10: a sequence ratio with token averages or with GRPO's clip range; and settings that cannot be."""
    flags = [*small, '--max_steps=1', f'--out_dir={tmp_path}']
    text = launch(*flags, '--ratio=sequence', before=COIN)
    assert 'warning: ratio = sequence wants average = seq, clip_high near 4e-4; here token, 0.3' in text
    text = launch(*flags, '--overlong_buffer=25', ok=False)
    assert 'overlong_buffer = 25 must be at most max_response_tokens = 24' in text and 'Traceback' not in text
    text = launch(*flags, '--reward=maths', ok=False)
    assert "reward = 'maths'" in text and "['grounding', 'math'] or FILE.py:FUNCTION" in text
    for flag in ('--prune_rate=1.5', '--align=-1', '--eval_top_p=1.1'):
        assert 'must be at' in launch(*flags, flag, ok=False)


# ----------------------------------------------------------------------------------------- continuous rewards

@needs_samples
def test_grounding(launch, level, tmp_path):
    """OS-Atlas screenshots through data/prepare.py, config/grounding.py and the tiny VLM, with boxes put into
    its mouth: IoUs make advantages continuous, and MDAP groups those closer than 1e-4."""
    source = SHARED / 'osatlas_grounding_handlabelled.parquet'
    prepare.main(['os_atlas', f'--source={source}', f'--out={tmp_path}/atlas'])
    boxes = '''
import reward, zlib
grounding = reward.KINDS['grounding']
def answered(response, question):
    left, top, right, bottom = (1000 * side for side in question['box'])
    shift = zlib.crc32(response.encode()) % 5 * (right - left) / 4
    box = f'[{left + shift}, {top}, {right + shift}, {bottom}]'
    return grounding('<thinking> </thinking> \\\\boxed{' + box + '}', question)
reward.KINDS['grounding'] = answered
'''
    text = launch(*files('grounding', 'tiny_vl'), f'--dataset={tmp_path}/atlas', '--max_pixels=20000',
                  '--min_pixels=3136', f'--init_from={level}/warm_start', f'--out_dir={tmp_path}/out',
                  '--print_every=1', before=boxes)
    for record in steps(tmp_path / 'out'):
        assert record['reward/mean'] == pytest.approx(
            record['reward/format'] + record['reward/iou'] + record['reward/center'])
        assert 0 < record['reward/iou'] < 1 and record['reward/accuracy'] == record['reward/center']
        assert record['prune/flat_groups'] < 1 and record['updates'] > 0
    assert 'eval/iou' in steps(tmp_path / 'out')[-1] and 'deviation' in text


# ------------------------------------------------------------------------------------------------ the print

def test_print_shows_why(small, launch, tmp_path):
    """One question's trajectories by advantage, who was kept, and which kept one the others resemble."""
    text = launch(*small, '--rollouts_per_question=8', '--print_every=1', '--tau=0.5',
                  f'--out_dir={tmp_path}', before=COIN)
    block = r'^--- (.*) \(truth: (.*); kept (\d) of 8\)\n(advantage .*\n)((?: *[+-].*\n){8})'
    blocks = re.findall(block, text, re.MULTILINE)
    assert len(blocks) == 2
    for problem, _, kept, header, table in blocks:
        assert 'of the shape?' in problem and header.split() == [
            'advantage', 'reward', 'tokens', '#', 'fate', 'deviation', 'response']
        row = r' *([+-][\d.]+) +([\d.]+) +(\d+) +(\d)  (kept|back|pruned) +(?:([\d.]+) to #(\d))?'
        rows = [re.match(row, line) for line in table.splitlines()]
        assert sorted(int(row[4]) for row in rows) == list(range(8))
        advantages = [float(row[1]) for row in rows]
        assert advantages == sorted(advantages, reverse=True) and len(set(advantages)) == 2
        assert sum(row[5] != 'pruned' for row in rows) == int(kept)
        fate = {int(row[4]): row for row in rows}
        for row in rows:
            if row[5] == 'pruned':
                assert float(row[6]) <= 0.5
                assert fate[int(row[7])][5] == 'kept' and fate[int(row[7])][1] == row[1]
            elif row[5] == 'kept' and row[6]:
                assert float(row[6]) >= 0.5
    starts = {line.index('response') for line in text.splitlines() if line.startswith('advantage ')}
    assert len(starts) == 1
