"""FastRL: group-relative RL of (vision-)language models that trains only on trajectories that differ.
    python train.py                                        the toy: a tiny Qwen2.5-VL, no GPU, no download
    torchrun --nproc_per_node=8 train.py config/geo3k.py   Qwen2.5-VL-7B on 8 GPUs of 80 GB
Departures from textbook GRPO:
1. only trajectories that differ in advantage or tokens are trained on; pruning precedes every log-prob pass;
2. the old log-probs are the sampler's own unless old_logps = 'recompute': one policy, one temperature;
3. random numbers depend on seed, step and place only: one process and many sample and train the same."""
import json
import os
import resource
import shutil
import signal
import time
from pathlib import Path
from statistics import fmean

import torch

import ars
import losses
import mdap
import model as models
import reward as rewarding
import rollout as sampling
from configurator import configure, fail
from eval import evaluate, summary

# run
out_dir = 'out/toy'             # log.jsonl, step_000123/, best/ and latest/ go here
init_from = 'toy'               # 'toy', 'resume' (out_dir), folder, Hub id, .gguf file, package:NAME
auto_resume = False             # go on from out_dir's newest checkpoint if it has one: for restarts
max_steps = 100                 # training steps; 0: as many as epochs gives
epochs = 0                      # passes over the questions; 0: as many as max_steps gives
seed = 1                        # of shuffling and sampling
device = 'auto'                 # 'auto' | 'cpu' | 'cuda': auto is cuda if there is one
cpu_threads = 1                 # of each process; 0: torch's default (the toy's matrices are too small for 2)
dtype = 'auto'                  # 'auto' | 'float32' | 'bfloat16': of the weights; auto: bfloat16 on cuda
attn_implementation = 'sdpa'    # or 'eager', 'flash_attention_2'
trust_remote_code = False       # run model code that a checkpoint brings along
# data
dataset = 'toy_geo'             # a name under data/, or a parquet / jsonl file
eval_dataset = ''               # '': the test split of dataset; a file has none and is taken itself
toy_level = 1                   # 1: quick demo, 2: harder, 3: boxes; at least 1, at most 3
system_prompt = ''              # '': none
examples = []                   # worked examples shown as earlier turns: [[question, answer], ...]
prompt_suffix = ''              # put behind every problem
max_prompt_tokens = 2048        # longer prompts (pictures counted) are dropped with a warning
min_pixels = 0                  # pictures are resized to at least this area; 0: as the checkpoint says
max_pixels = 0                  # and to at most this; 0: as the checkpoint says
# rollouts
questions_per_step = 32         # over all ranks, at least 1
rollouts_per_question = 8       # G of the first epoch, at least 2: a group of one has no spread
temperature = 1.0               # of sampling and of every log-prob, at least 0.001
max_response_tokens = 64        # longer responses are cut: truncated; at least 1
max_tokens_in_flight = 262144   # per rank: rows x (prompt + response) sampled at once; bounds the cache
adaptive_rollouts = True        # ARS: G follows the pruning history
greso = False                   # GRESO: may skip questions last answered all right or all wrong
dynamic_sampling = False        # DAPO: replace questions whose answers are all right or all wrong
max_refills = 19                # DAPO: rounds of sampling that may follow the first of a step; at least 0
# reward
reward = 'math'                 # or 'grounding', or your own: path/to/my_reward.py:my_function
overlong_buffer = 0             # DAPO: the last so many of max_response_tokens cost; 0: off; at least 0
overlong_factor = 1.0           # so much for a response of full length
# what to train on
pruning = 'mdap'                # 'mdap' | 'cppo' | 'random' | 'advantage_only' | 'none': see mdap.py
tau = 0.8                       # mdap: least deviation of those kept; 0: keep all, > 1: one; at least 0
ngram = 1                       # mdap: of the token ids compared; at least 1
prune_rate = 0.5                # cppo, random: share of trajectories that goes, at least 0, at most 1
align = 0                       # pruning stops at a multiple of this, at least 0: ranks x updates_per_step
drop_flat_groups = False        # leave out trajectories of advantage 0: exact at beta = 0, and faster
mask_truncated = False          # leave out answers that were cut off
# loss
ratio = 'token'                 # 'token' | 'sequence' | 'sequence_token': GRPO and DAPO, GSPO, its variant
clip_low = 0.2                  # ratios below 1 - clip_low are clipped
clip_high = 0.3                 # ratios above 1 + clip_high are clipped
dual_clip = 3.0                 # bound on the loss of negative advantages; 0: off
average = 'token'               # 'token' | 'seq': every token counts the same, or every trajectory
beta = 0.0                      # weight of the KL to the initial policy; 0: no reference model; at least 0
kl = 'k3'                       # 'k3' | 'k1' | 'abs' | 'k2': estimator of it
old_logps = 'sampler'           # 'sampler' | 'recompute': as sampled, or by a pass of their own
# optimizer
updates_per_step = 4            # optimizer updates on each step's trajectories, at least 1
tokens_per_microbatch = 16384   # per rank: rows x (prompt + response) of one forward and backward pass
learning_rate = 2e-4            # constant after the warm-up; at least 0
warmup_steps = 5                # 0: none
weight_decay = 0.0              # of AdamW
beta1 = 0.9                     # of AdamW
beta2 = 0.99                    # of AdamW
grad_clip = 1.0                 # largest gradient norm; 0: off
max_bad_steps = 3               # as many steps in a row may have a nan or infinite gradient; at least 0
check_every = 25                # steps between checks that all ranks have the same weights; 0: never
share_prefix = True             # False: full sequences, as other frameworks do (for comparison)
gradient_checkpointing = False  # less memory in updates, at full sequences
# evaluation and log
eval_every = 25                 # steps; 0: only before and after
eval_questions = 0              # 0: the whole test split
eval_temperature = 0.0          # 0: greedy; at least 0
eval_top_p = 1.0                # 1: off; at most 1
eval_sampled = True             # also one answer per question at the training temperature
print_every = 25                # steps between printed groups of answers; 0: never
save_every = 0                  # steps between checkpoints; 0: only the last
keep_checkpoints = 2            # older ones are deleted; at least 1
config = configure(__file__)
globals().update(config)

# ------------------------------------------------------------------------------------------------------ setup
rank, world = int(os.environ.get('RANK', 0)), int(os.environ.get('WORLD_SIZE', 1))
say = print if rank == 0 else (lambda *_: None)
if overlong_buffer > max_response_tokens:
    fail(f'overlong_buffer = {overlong_buffer} must be at most max_response_tokens = {max_response_tokens}')
if (max_steps > 0) == (epochs > 0):
    fail(f'max_steps = {max_steps} and epochs = {epochs}: exactly one of the two must be positive')
torch.manual_seed(seed)
loading = models.setup(config)  # process group, device, dtype
device, cuda = loading['device'], loading['device'].type == 'cuda'
data_name, test_name, start = (
    sampling.resolve(name, config) for name in (dataset, eval_dataset or dataset, init_from))
made = sampling.DATA / f'toy_geo/level{toy_level}'
if {dataset, init_from} & {'toy_geo', 'toy'} and not made.exists():
    if rank == 0:  # once; the other ranks wait
        from data import toy
        toy.prepare(made.parent, toy_level)
    models.gather(None)

# a fresh policy, or the newest checkpoint of out_dir with its optimizer, position and statistics
state = {'step': 0, 'drawn': 0, 'updates': 0, 'bad_steps': 0, 'best': -1.0, 'init_from': start}
resumed = models.gather((auto_resume or init_from == 'resume') and models.newest(out_dir, say))[0]
if resumed:
    start, state = resumed, state | json.loads((resumed / 'state.json').read_text())
    for key in ('world', 'dataset', 'toy_level', 'seed', 'questions_per_step', 'rollouts_per_question'):
        new, old = (config | {'world': world})[key], (state['settings'] | state)[key]
        if new != old:
            fail(f'{key} = {new!r}: to resume {start} keep {old!r} (world: the number of processes)')
elif init_from == 'resume':
    fail(f'init_from = resume, but {out_dir} has no whole checkpoint: start afresh, or correct out_dir')
path, log = Path(out_dir, 'log.jsonl'), open(os.devnull, 'w')
try:
    rewarding.find(reward)
    model, processor = models.load(start, **loading)
    questions = sampling.load_questions(data_name, 'train')
    test_questions = sampling.load_questions(test_name, 'test', eval_questions)
    fitting, tested = models.gather([sampling.usable(rows, processor, config, say)  # as rank 0 finds them
                                     for rows in (questions, test_questions)])[0]
    if len(fitting) < questions_per_step or not tested:
        raise ValueError(f'{len(fitting)} questions, {len(tested)} to test, are left: too few, see above; '
                         f'raise max_prompt_tokens, lower max_pixels or questions_per_step')
    if rank == 0:
        path.parent.mkdir(parents=True, exist_ok=True)
        for rest in path.parent.glob('*.tmp'):  # of a run that was killed while saving
            shutil.rmtree(rest, ignore_errors=True)
        done = path.read_text().splitlines(True) if state['step'] and path.is_file() else []
        done = [x for x in done if x[-1] == '\n' and json.loads(x).get('step', 0) <= state['step']]
        path.with_suffix('.tmp').write_text(''.join(done))  # aside, then renamed: no line gets lost
        log = path.with_suffix('.tmp').replace(path).open('a', buffering=1)  # by line: printed is written
except (OSError, ValueError) as error:
    fail(f'{error} (init_from = {init_from!r}, dataset = {dataset!r}, out_dir = {out_dir!r})')
test_questions = test_questions.select(tested)
per_epoch = len(fitting) - len(fitting) % questions_per_step  # the rest of an epoch's permutation is left out
max_steps = max_steps or epochs * per_epoch // questions_per_step  # with refills or skips, epochs end earlier

policy, ends = models.Policy(model, temperature, share_prefix), models.end_ids(model, processor)
if not policy.can_share:
    say(f'{type(model).__name__} has a cache that can not be shared in updates: full sequences there')
if gradient_checkpointing:
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={'use_reentrant': False})
reference = None if beta == 0 else models.Policy(
    models.load(state['init_from'], **loading)[0], temperature, share_prefix).requires_grad_(False)
wrapped = policy if world == 1 else torch.nn.parallel.DistributedDataParallel(
    policy, device_ids=[device] if cuda else None, forward_sync_buffers=False, gradient_as_bucket_view=True)
optimizer = models.make_optimizer(policy.parameters(), world, lr=learning_rate, betas=(beta1, beta2),
                                  weight_decay=weight_decay)
adaptive, prompt_filter = ars.AdaptiveRollouts(rollouts_per_question, max_steps), ars.PromptFilter()
rules = {  # what is worth training on: response ids and advantages of one question -> indices
    'mdap': lambda ids, A, generator: mdap.select(ids, A, tau, ngram),
    'cppo': lambda ids, A, generator: mdap.cppo(A, prune_rate),
    'random': lambda ids, A, generator: mdap.random_prune(len(A), prune_rate, generator),
    'advantage_only': lambda ids, A, generator: mdap.advantage_only(A, generator),
    'none': lambda ids, A, generator: mdap.select(ids, A, tau, ngram) if adaptive_rollouts else []}  # for ARS
if resumed:
    adaptive.load_state_dict(state['ars'])
    prompt_filter.load_state_dict(state['greso'])
    models.load_optimizer(start, optimizer)

N = questions_per_step * rollouts_per_question
say(f'{model.num_parameters() / 1e6:.2f}M parameters in {model.dtype} on {device} x {world}; '
    f'{len(fitting)} questions, {per_epoch // questions_per_step} steps an epoch, {max_steps} steps\n'
    f'{questions_per_step} questions x {rollouts_per_question} rollouts = {N} trajectories a step; '
    f'/ {world} ranks = {N // world}; {updates_per_step} updates a step\n'
    f'sampling: temperature {temperature}, no top-p, no top-k, no penalties; '
    f'forbidden ids {policy.forbidden.nonzero()[:, 0].tolist()}, end ids {ends}')
if ratio != 'token' and (average == 'token' or clip_high > 0.01):
    say(f'warning: ratio = {ratio} wants average = seq, clip_high near 4e-4; here {average}, {clip_high}')
if os.environ.get('TORCHELASTIC_USE_AGENT_STORE') == 'True' and os.environ['TORCHELASTIC_MAX_RESTARTS'] > '0':
    say('warning: torchrun may hang at a restart: set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 where it starts')
signals, last, stopping = [], False, False  # SIGTERM, Ctrl-C: the step is finished and saved
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda number, _: signals.append(number))

def evaluation():
    """Scores on the test questions at eval_temperature, and at the training temperature; on all ranks."""
    inputs = policy, processor, test_questions, ends, config
    scores = summary(evaluate(*inputs, eval_temperature, eval_top_p))
    if eval_sampled:
        scores['sampled'] = summary(evaluate(*inputs, temperature))['accuracy']
    scores = {f'eval/{key}': value for key, value in scores.items()}
    say('evaluation ' + ' '.join(f'{key} {value:.3f}' for key, value in scores.items()))
    return scores

def save(name=''):
    """Write out_dir/NAME; without a name a checkpoint to resume from: latest/ points to it, old ones go."""
    now = state | {'ars': adaptive.state_dict(), 'greso': prompt_filter.state_dict(), 'world': world}
    folder = Path(out_dir, name or f'step_{state["step"]:06d}')
    problem = models.save(folder, model, processor, now | {'settings': config}, None if name else optimizer)
    if problem:  # as long as the run goes on, nothing is lost
        (fail if (last or stopping) and not name else say)(
            f'{folder} could not be written: {problem}; what {out_dir} held is unharmed')
    elif rank == 0 and not name:
        (folder / 'latest').symlink_to(folder.name)  # aside, then moved
        (folder / 'latest').replace(Path(out_dir, 'latest'))
        others = sorted({*Path(out_dir).glob('step_??????')} - {folder}, key=os.path.getmtime)
        for old in others[:1 - keep_checkpoints or None]:
            shutil.rmtree(old, ignore_errors=True)
    models.gather(None)  # no rank ends before all is written

def explain(group, chosen, kept):
    """One question's trajectories by advantage; each one's nearest kept one says why it was pruned."""
    question = questions[asked[group[0].slot]]
    yield f'--- {question["problem"]} (truth: {question["answer"]}; kept {len(kept)} of {len(group)})'
    yield 'advantage  reward  tokens   #  fate    deviation    response'
    for rows in mdap.advantage_groups([t.advantage for t in group]):
        grams = {i: mdap.ngrams(group[i].ids, ngram) for i in rows}
        for i in sorted(rows, key=lambda i: (i not in chosen, i)):
            others = [(float(mdap.deviation(grams[i], grams[j])), j) for j in {*rows} & {*chosen} - {i}]
            near = '{:.2f} to #{}'.format(*min(others)) if others else ''
            fate = 'kept' if i in chosen else 'back' if i in kept else 'pruned'
            yield (f'{group[i].advantage:+9.3f} {group[i].reward:7.2f} {len(group[i].ids):7} {i:3}  '
                   f'{fate:6}  {near:11}  ' + ' '.join(group[i].text.split())[:90])

def lap(stage):
    """Add the seconds since the last call, those of the step that no stage has yet, to spent[stage]."""
    spent[stage] = time.perf_counter() - since - sum(spent.values()) + spent.get(stage, 0.0)

# ------------------------------------------------------------------------------------------------------- loop
if state['step'] == 0:
    scores = evaluation()
    state['best'] = scores['eval/accuracy']
    print(json.dumps({'config': config}), json.dumps({'step': 0, **scores}), sep='\n', file=log)
while state['step'] < max_steps and not 0 < epochs * per_epoch <= state['drawn']:
    since, spent = time.perf_counter(), {}
    step, drawn, epoch = state['step'] + 1, state['drawn'], state['drawn'] // per_epoch
    G = adaptive.rollouts if adaptive_rollouts else rollouts_per_question
    asked, prompts, visits, groups, order, size = [], {}, [], [], [], questions_per_step
    for refill in range(max_refills + 1):
        # 1. the next questions of the epoch; each rank rolls out its part of them
        first = len(asked)
        while len(asked) < first + size:
            if not order or drawn % per_epoch == 0:  # each epoch is a permutation of its own
                shuffle = torch.Generator().manual_seed(sampling.seed_of(seed, drawn // per_epoch))
                order = [fitting[i] for i in torch.randperm(len(fitting), generator=shuffle).tolist()]
            question, drawn = order[drawn % per_epoch], drawn + 1
            coin = torch.Generator().manual_seed(sampling.seed_of(seed, 'skip', drawn))
            if not greso or torch.rand((), generator=coin) >= prompt_filter.skip_probability(question):
                asked.append(question)
        mine = range(first + rank * size // world, first + (rank + 1) * size // world)
        truths = [questions[asked[slot]] for slot in mine]
        prompts |= {slot: sampling.encode(truth, processor, config) for slot, truth in zip(mine, truths)}
        seeds = [sampling.seed_of(seed, state['step'], slot) for slot in mine]
        rollouts = sampling.generate(policy, processor, [prompts[slot] for slot in mine], G, ends, seeds,
                                     max_response_tokens, max_tokens_in_flight)
        lap('time/generate')

        # 2. rewards, and advantages within the G rollouts of each question; then every rank knows them all
        owner, lengths = [t.slot for t in rollouts], torch.tensor([len(t.ids) for t in rollouts])
        parts = rewarding.score([t.text for t in rollouts], owner, truths, reward)
        rewards = torch.tensor([values.pop('reward') for values in parts], dtype=torch.float64)
        rewards += losses.overlong_penalty(lengths, max_response_tokens, overlong_buffer, overlong_factor)
        advantages = losses.group_advantages(rewards, torch.tensor(owner)).tolist()
        for t, scores, value, advantage in zip(rollouts, parts, rewards.tolist(), advantages):
            t.slot, t.parts, t.reward, t.advantage = mine[t.slot], scores, value, advantage
        fresh = [rollouts[i:i + G] for i in range(0, len(rollouts), G)]  # by question
        lap('time/reward')
        visits += [(g, [t.parts['accuracy'] for t in g]) for part in models.gather(fresh) for g in part]
        lap('time/generate')  # waiting for the slowest rank
        groups += [g for g, right in visits[first:] if not dynamic_sampling or ars.informative(right)]
        if len(groups) >= questions_per_step:
            break
        means = [fmean(right) for _, right in visits[first:]]
        seen = (f'{len(groups)} of {questions_per_step} questions have right and wrong answers; of the last '
                f'{size} {means.count(0)} none right, {means.count(1)} all, accuracy {fmean(means):.3f}')
        say(f'refill {refill + 1}: {seen}')
        if greso:
            missing, flat = questions_per_step - len(groups), (means.count(0) + means.count(1)) / size
            size = ars.refill_size(missing * G, flat, G, questions_per_step)
    else:
        save()
        fail(f'step {step}: after max_refills = {max_refills} only {seen}. Near 0 reward, prompt or data do '
             'not fit the model, near 1 little is left to learn: look at answers, raise max_refills or set '
             f'dynamic_sampling = False. {out_dir}/latest is saved')

    # 3. prune: choose within each question, then add back until the number of survivors divides evenly
    groups = [[t for t in g if not (mask_truncated and t.truncated)] for g in groups[:questions_per_step]]
    advantages = [[t.advantage for t in group] for group in groups]
    generator = torch.Generator().manual_seed(sampling.seed_of(seed, state['step'], 'prune'))
    chosen = [rules[pruning]([t.ids for t in group], A, generator) for group, A in zip(groups, advantages)]
    kept = mdap.align(chosen, advantages, align or world * updates_per_step)
    adaptive.record([len(indices) for indices in kept if indices])
    if pruning == 'none':  # all are trained on; ARS has learned what MDAP would keep
        kept = chosen = [list(range(len(group))) for group in groups]

    # 4. all ranks compute one plan: which rank trains what, in which update
    survivors = [group[i] for group, indices in zip(groups, kept) for i in indices]  # K, question by question
    K, plan = len(survivors), []
    for u in range(updates_per_step):
        rows = survivors[u * K // updates_per_step:(u + 1) * K // updates_per_step]
        count = sum(len(t.ids) for t in rows) if average == 'token' else len(rows)
        rows = [t for t in rows if t.advantage or not drop_flat_groups]  # count stays: the same mean
        plan.append((rows, count, [  # for each rank: its rows, cut into micro-batches
            sampling.chunks([rows[i] for i in hand], [rows[i].cost for i in hand], tokens_per_microbatch)
            for hand in mdap.deal([t.cost for t in rows], [t.slot for t in rows], world)]))
    my_batches = [batch for _, _, update in plan for batch in update[rank]]
    for slot in {t.slot for t in survivors[:1] + sum(my_batches, [])} - set(prompts):  # of other ranks
        prompts[slot] = sampling.encode(questions[asked[slot]], processor, config)
    lap('time/prune')

    # 5. log-probs before the updates: old ones where the sampler's do not serve, the reference's if beta > 0
    with torch.no_grad():
        recompute = policy if old_logps == 'recompute' else None
        for stage, network, name in (('time/old', recompute, 'logps'), ('time/ref', reference, 'ref_logps')):
            for batch in my_batches if network else []:
                for t, logps in zip(batch, network(*sampling.pack(batch, prompts, device))[0].tolist()):
                    setattr(t, name, logps[:len(t.ids)])
            lap(stage)

    # 6. updates: every micro-batch adds its share of a mean over all ranks, whose count is known beforehand
    policy.train(gradient_checkpointing)
    for group in optimizer.param_groups:
        group['lr'] = lr = learning_rate * min(1.0, step / max(1, warmup_steps))
    totals, norms, trained = torch.zeros(4, dtype=torch.float64), [], []
    for rows, count, update in plan:
        if not any(t.advantage or reference for t in rows):
            continue  # no signal: not even momentum moves
        trained += rows
        tokens = sum(len(t.ids) for t in rows)
        own, passes = update[rank], max(map(len, update))  # every rank runs as many, or the collectives hang
        for i, batch in enumerate(own + [survivors[:1]] * (passes - len(own))):  # stand-ins
            inputs = sampling.pack(batch, prompts, device)
            weight = inputs[-1] & (i < len(own))  # [k, T], 0 for a stand-in
            wrapped.require_backward_grad_sync = i == passes - 1  # DDP reduces in the last pass only
            logps, entropy = wrapped(*inputs)  # [k, T]; DDP's own forward arms the reduction
            loss, stats = losses.policy_loss(
                logps, sampling.pad([t.logps for t in batch], device),
                torch.tensor([t.advantage for t in batch], device=device), weight,
                ratio=ratio, clip_low=clip_low, clip_high=clip_high, dual_clip=dual_clip or None)
            penalty = torch.zeros_like(loss) if not reference else losses.kl_penalty(  # [k, T]
                logps, sampling.pad([t.ref_logps or t.logps for t in batch], device), kl)
            shares = [losses.average(x, weight, average, count) for x in (loss, penalty)]
            ((shares[0] + beta * shares[1]) * world).backward()  # DDP takes the mean of ranks: undo that
            shares += [losses.average(x, weight, count=tokens) for x in (stats['clip_fraction'], entropy)]
            totals += torch.stack(shares).detach().double().cpu()
        norms.append(torch.nn.utils.clip_grad_norm_(policy.parameters(), grad_clip or torch.inf).item())
        if norms[-1] < torch.inf:  # the gradients, and so this decision, are the same on all ranks
            optimizer.step()
        else:
            say(f'warning: step {step}: gradient norm {norms[-1]}, this update is skipped')
        policy.zero_grad()
    policy.eval()
    state['bad_steps'] = 0 if all(norm < torch.inf for norm in norms) else state['bad_steps'] + 1
    if state['bad_steps'] > max_bad_steps:
        names = [questions[i].get('id', i) for i in asked]
        fail(f'step {step}: {state["bad_steps"]} steps in a row had a gradient that is nan or infinite, on '
             f'{names}; last good checkpoint: {models.newest(out_dir, say)}')
    if check_every and (step == 1 or step % check_every == 0):
        sums = models.gather(str(sum(p.detach().abs().sum(dtype=torch.float64) for p in policy.parameters())))
        if len({*sums}) > 1:
            fail(f'step {step}: the weights of the ranks differ (sums {sums}): broken hardware, or a bug')
    lap('time/update')

    # 7. the step counts as done: report, evaluate, save
    for group, right in visits:
        prompt_filter.observe(asked[group[0].slot], right)
    prompt_filter.end_step(epoch)
    if drawn // per_epoch > epoch:  # with refills or skips the data may end before max_steps
        adaptive.end_epoch(max_steps * drawn / (epochs * per_epoch) if epochs else step)
    totals = torch.tensor(models.gather(totals.tolist()), dtype=torch.float64).sum(0) / max(1, len(norms))
    sampled = [t for group, _ in visits for t in group]
    record = {
        'step': step, 'epoch': epoch, 'rollouts_per_question': G, 'refills': refill, 'lr': lr,
        'questions_skipped': drawn - state['drawn'] - len(asked), 'trajectories_sampled': len(sampled),
        'trajectories_trained': len(trained), 'rollout/length': fmean(len(t.ids) for t in sampled),
        'updates': sum(x < torch.inf for x in norms), 'tokens_trained': sum(len(t.ids) for t in trained),
        'tokens_sampled': sum(len(t.ids) for t in sampled), 'reward/mean': fmean(t.reward for t in sampled),
        **{f'reward/{key}': fmean(t.parts[key] for t in sampled) for key in sampled[0].parts},
        'prune/kept_mean': fmean(map(len, kept)), 'prune/kept_max': max(map(len, kept)),
        'prune/flat_groups': fmean(not any(t.advantage for t in group) for group, _ in visits),
        'rollout/truncated': fmean(t.truncated for t in sampled),
        **dict(zip(('loss/policy', 'loss/kl', 'loss/clip_fraction', 'loss/entropy'), totals.tolist())),
        'loss/grad_norm': sum(norms) / max(1, len(norms)), 'time/step': sum(spent.values()), **spent,
        'memory/peak_gb': torch.cuda.max_memory_allocated() / 1e9 if cuda else
                          resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6}
    state |= {'step': step, 'drawn': drawn, 'updates': state['updates'] + record['updates']}
    say('step {step}/{max_steps} epoch {epoch} | reward {reward/mean:.3f} accuracy {reward/accuracy:.3f} '
        'format {reward/format:.3f} | G {rollouts_per_question} trained {trajectories_trained}/'
        '{trajectories_sampled} length {rollout/length:.1f} | loss {loss/policy:+.3f} norm '
        '{loss/grad_norm:.2f} entropy {loss/entropy:.2f} | {time/step:.2f} s: generate {time/generate:.2f} '
        'update {time/update:.2f}'.format(max_steps=max_steps, **record))
    if print_every and step % print_every == 0:
        q = max(range(len(groups)), key=lambda q: len(set(advantages[q])))
        say('\n'.join(explain(groups[q], chosen[q], kept[q])) if groups[q] else 'all answers were cut off')
    last = step == max_steps or 0 < epochs * per_epoch <= drawn
    if last or eval_every and step % eval_every == 0:
        record |= evaluation()
        if record['eval/accuracy'] > state['best']:  # "best" is replaced by strictly better scores only
            state['best'] = record['eval/accuracy']
            save('best')
    print(json.dumps(record), file=log)
    stopping = any(models.gather(signals))
    if last or stopping or save_every and step % save_every == 0 and not state['bad_steps']:
        save()
    if stopping and not last:
        say(f'stopped by a signal after step {step}; --auto_resume goes on from {out_dir}/latest')
        raise SystemExit(128 + signal.SIGTERM)
say(f'done: {state["updates"]} updates, best accuracy {state["best"]:.3f}; eval.py opens {out_dir}/latest')
if world > 1:
    torch.distributed.destroy_process_group()
