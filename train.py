"""FastRL: group-relative RL of (vision-)language models that trains only on trajectories that differ.

    python train.py                                        the toy: a tiny Qwen2.5-VL, no GPU, no download
    torchrun --nproc_per_node=2 train.py                   two processes (gloo on CPUs, nccl on GPUs)
    torchrun --nproc_per_node=8 train.py config/geo3k.py   Qwen2.5-VL-7B on 8 GPUs of 80 GB
    torchrun --nnodes=2 --nproc_per_node=8 --rdzv_endpoint=HOST:29500 train.py config/geo3k.py    two of those

A step: roll out -> score -> prune (MDAP) -> deal to ranks -> old / reference log-probs -> updates; after an
epoch ARS sets the number of rollouts of the next. Departures from textbook GRPO:
1. only trajectories that differ in advantage or tokens are trained on; pruning precedes every log-prob pass;
2. the old log-probs are the sampler's own unless old_logps = 'recompute': one policy, one temperature;
3. ids depend on seed, step and question only, so that one process and many sample and train the same.
"""
import json
import os
import resource
import shutil
import time
from contextlib import nullcontext
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from tqdm import tqdm

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
init_from = 'toy'               # 'toy', 'resume' (out_dir/latest), folder, Hub id, .gguf file, package:NAME
max_steps = 100                 # training steps; 0: as many as epochs gives
epochs = 0                      # passes over the questions; 0: as many as max_steps gives
seed = 1                        # of shuffling and sampling
device = 'auto'                 # 'auto': cuda if there is one, else cpu
cpu_threads = 1                 # of each process; 0: torch's default (the toy's matrices are too small for 2)
dtype = 'auto'                  # of the weights: 'float32', 'bfloat16', 'auto': bfloat16 on cuda only
attn_implementation = 'sdpa'    # or 'eager', 'flash_attention_2'
trust_remote_code = False       # run model code that a checkpoint brings along
# data
dataset = 'toy_geo'             # a name under data/, or a parquet / jsonl file
eval_dataset = ''               # '': the test split of dataset
toy_level = 1                   # 1: quick demo, 2 and 3: harder and richer
system_prompt = ''              # '': none
examples = []                   # worked examples shown as earlier turns: [[question, answer], ...]
prompt_suffix = ''              # put behind every problem
max_prompt_tokens = 2048        # longer prompts (pictures counted) are dropped with a warning
min_pixels = 0                  # pictures are resized to at least this area; 0: as the checkpoint says
max_pixels = 0                  # and to at most this; 0: as the checkpoint says
# rollouts
questions_per_step = 32         # over all ranks
rollouts_per_question = 8       # G of the first epoch, at least 2
temperature = 1.0               # of sampling and of every log-prob
max_response_tokens = 64        # longer responses are cut: truncated
max_tokens_in_flight = 262144   # per rank: rows x (prompt + response) sampled at once; bounds the cache
# reward
reward = 'math'                 # 0.5 for the format and 1 for the right answer
# what to train on
pruning = 'mdap'                # 'none': every trajectory
tau = 0.8                       # least deviation of those kept of one advantage; 0: keep all, > 1: keep one
ngram = 1                       # of the token ids compared
align = 0                       # trained trajectories are a multiple of this; 0: ranks x updates_per_step
adaptive_rollouts = True        # ARS: G follows the pruning history
# loss
ratio = 'token'                 # 'token' (GRPO, DAPO), 'sequence' or 'sequence_token' (GSPO)
clip_low = 0.2                  # ratios below 1 - clip_low are clipped
clip_high = 0.3                 # ratios above 1 + clip_high are clipped
dual_clip = 3.0                 # bound on the loss of negative advantages; 0: off
average = 'token'               # 'token': every token counts the same, 'seq': every trajectory
beta = 0.0                      # weight of the KL to the initial policy; 0: no reference model
kl = 'k3'                       # estimator of it: 'k3', 'k1', 'abs', 'k2'
old_logps = 'sampler'           # 'sampler': as sampled, 'recompute': by a pass of their own
# optimizer
updates_per_step = 4            # optimizer updates on each step's trajectories
tokens_per_microbatch = 16384   # per rank: rows x (prompt + response) of one forward and backward pass
learning_rate = 2e-4            # constant after the warm-up
warmup_steps = 5                # 0: none
weight_decay = 0.0              # of AdamW
beta1 = 0.9                     # of AdamW
beta2 = 0.99                    # of AdamW
grad_clip = 1.0                 # largest gradient norm; 0: off
share_prefix = True             # False: full sequences, as other frameworks do (for comparison)
gradient_checkpointing = False  # less memory in updates, at full sequences
# evaluation and log
eval_every = 25                 # steps; 0: only before and after
eval_questions = 0              # 0: the whole test split
eval_temperature = 0.0          # 0: greedy
eval_top_p = 1.0                # 1: off
eval_sampled = True             # also one answer per question at the training temperature
print_every = 25                # steps between printed sample answers; 0: never
save_every = 0                  # steps between checkpoints; 0: only the last
keep_checkpoints = 2            # older ones are deleted
config = configure(__file__)
globals().update(config)

# ------------------------------------------------------------------------------------------------------ setup
rank, world = int(os.environ.get('RANK', 0)), int(os.environ.get('WORLD_SIZE', 1))
say = tqdm.write if rank == 0 else (lambda *_: None)
for key, allowed in {
        'pruning': ['mdap', 'none'], 'average': ['token', 'seq'], 'kl': ['k3', 'k1', 'abs', 'k2'],
        'ratio': ['token', 'sequence', 'sequence_token'], 'old_logps': ['sampler', 'recompute'],
        'reward': list(rewarding.KINDS), 'dtype': ['auto', 'float32', 'bfloat16']}.items():
    if config[key] not in allowed:
        fail(f'{key} = {config[key]!r} must be one of {allowed}')
for key, least in {  # greedy groups and groups of one have no spread to learn from
        'temperature': 1e-3, 'rollouts_per_question': 2, 'questions_per_step': 1, 'max_response_tokens': 1,
        'updates_per_step': 1, 'ngram': 1, 'tau': 0, 'beta': 0, 'learning_rate': 0, 'eval_temperature': 0,
        'keep_checkpoints': 1}.items():
    if config[key] < least:
        fail(f'{key} = {config[key]} must be at least {least}')
if questions_per_step % world:
    below = questions_per_step // world * world
    fail(f'questions_per_step = {questions_per_step} does not divide by {world} processes: '
         f'take {below or world} or {below + world}')
if (max_steps > 0) == (epochs > 0):
    fail(f'max_steps = {max_steps} and epochs = {epochs}: exactly one of the two must be positive')

torch.manual_seed(seed)
loading = models.setup(config)  # process group, device, dtype
device, cuda = loading['device'], loading['device'].type == 'cuda'
data_name, start = sampling.resolve(config)
if data_name.startswith('toy_geo') and not (sampling.DATA / data_name).exists():
    if rank == 0:  # generated here, once; the other ranks wait
        say(f'data/{data_name} does not exist yet: making it takes two minutes, once')
        from data import toy
        toy.prepare(sampling.DATA / 'toy_geo', toy_level)
    sampling.gather(None)

# a fresh policy, or the newest checkpoint of out_dir with its optimizer, position and statistics
state = {'step': 0, 'best': -1.0, 'init_from': start}
if init_from == 'resume':
    start = Path(out_dir, 'latest').resolve()
    if not (start / 'state.json').is_file():
        fail(f'init_from = resume, but {out_dir}/latest is no checkpoint: start afresh, or correct out_dir')
    state = json.loads((start / 'state.json').read_text())
    if state['world'] != world:
        fail(f'{start} is of {state["world"]} processes, these are {world}: resume with as many')
try:
    model, processor = models.load(start, **loading)
    questions = sampling.load_questions(data_name, 'train')
    test_questions = sampling.load_questions(eval_dataset or data_name, 'test', eval_questions)
    counting = tqdm(questions, 'measuring prompts', disable=rank > 0 or len(questions) < 1000)
    lengths = [len(sampling.encode(question, processor, config)['input_ids']) for question in counting]
except (OSError, ValueError) as error:
    fail(f'{error} (init_from = {init_from!r}, dataset = {dataset!r})')
fitting = [i for i, length in enumerate(lengths) if length <= max_prompt_tokens]
if len(fitting) < len(lengths):
    say(f'warning: dropped {len(lengths) - len(fitting)} of {len(lengths)} questions whose prompt is longer '
        f'than max_prompt_tokens = {max_prompt_tokens} (longest: {max(lengths)})')
if len(fitting) < questions_per_step:
    fail(f'{len(fitting)} questions of {dataset} are left, but questions_per_step = {questions_per_step}: '
         'raise max_prompt_tokens, lower max_pixels or take fewer questions per step')
steps_per_epoch = len(fitting) // questions_per_step  # the rest of an epoch's permutation is left out
max_steps = max_steps or epochs * steps_per_epoch

policy = models.Policy(model, temperature, share_prefix)
ends = models.end_ids(model, processor)
if not policy.can_share:
    say(f'{type(model).__name__} has a cache that can not fan out: library generate, full-sequence log-probs')
if gradient_checkpointing:
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={'use_reentrant': False})
reference = None
if beta > 0:
    first, _ = models.load(state['init_from'], **loading)
    reference = models.Policy(first, temperature, share_prefix).requires_grad_(False)
wrapped = policy if world == 1 else DistributedDataParallel(
    policy, device_ids=[device] if cuda else None, forward_sync_buffers=False, gradient_as_bucket_view=True)
optimizer = models.make_optimizer(policy.parameters(), world, lr=learning_rate, betas=(beta1, beta2),
                                  weight_decay=weight_decay)
adaptive = ars.AdaptiveRollouts(rollouts_per_question, max_steps)
if init_from == 'resume':
    if state['ars']['initial'] != rollouts_per_question:
        fail(f'rollouts_per_question = {rollouts_per_question}: keep {start}\'s {state["ars"]["initial"]}')
    adaptive.load_state_dict(state['ars'])
    models.load_optimizer(start, optimizer)

N = questions_per_step * rollouts_per_question
say(f'{model.num_parameters() / 1e6:.2f}M parameters in {model.dtype} on {device} x {world}; '
    f'{len(fitting)} questions, {steps_per_epoch} steps an epoch, {max_steps} steps\n'
    f'{questions_per_step} questions x {rollouts_per_question} rollouts = {N} trajectories a step; '
    f'/ {world} ranks = {N // world}; {updates_per_step} updates a step\n'
    f'sampling: temperature {temperature}, no top-p, no top-k, no penalties; '
    f'forbidden ids {policy.forbidden.nonzero()[:, 0].tolist()}, end ids {ends}')
if rank == 0:
    Path(out_dir).mkdir(parents=True, exist_ok=True)
    done = Path(out_dir, 'log.jsonl').read_text().splitlines(True) if init_from == 'resume' else []
    done = [line for line in done if json.loads(line).get('step', 0) <= state['step']]  # no step twice
    Path(out_dir, 'log.jsonl').write_text(''.join(done))


def log(record):
    if rank == 0:
        with Path(out_dir, 'log.jsonl').open('a') as file:
            file.write(json.dumps(record) + '\n')


def evaluation():
    """Scores on the test questions at eval_temperature, and at the training temperature; on all ranks."""
    inputs = policy, processor, test_questions, ends, config
    scores = summary(evaluate(*inputs, eval_temperature, eval_top_p))
    if eval_sampled:
        scores['sampled'] = summary(evaluate(*inputs, temperature))['accuracy']
    scores = {f'eval/{key}': value for key, value in scores.items()}
    say('evaluation ' + ' '.join(f'{key} {value:.3f}' for key, value in scores.items()))
    return scores


def checkpoint(name, optimizer=None):
    """Write out_dir/NAME; all ranks call it."""
    now = state | {'step': step, 'ars': adaptive.state_dict(), 'world': world, 'settings': config}
    models.save(Path(out_dir, name), model, processor, now, optimizer)


# ------------------------------------------------------------------------------------------------------- loop
step = state['step']
if step == 0:
    scores = evaluation()
    state['best'] = scores['eval/accuracy']
    log({'config': config})
    log({'step': 0, **scores})
while step < max_steps:
    clock = [time.perf_counter()]
    epoch, position = divmod(step, steps_per_epoch)
    G = adaptive.rollouts if adaptive_rollouts else rollouts_per_question
    # 1. the step's questions, a slice of the epoch's permutation; each rank rolls out its part of the slots
    shuffle = torch.Generator().manual_seed(sampling.seed_of(seed, epoch))
    order = torch.randperm(len(fitting), generator=shuffle)
    chosen = [fitting[i] for i in order[position * questions_per_step:][:questions_per_step]]
    mine = range(rank * questions_per_step // world, (rank + 1) * questions_per_step // world)
    asked = [questions[chosen[slot]] for slot in mine]
    prompts = {slot: sampling.encode(question, processor, config) for slot, question in zip(mine, asked)}
    rollouts = sampling.generate(policy, processor, list(prompts.values()), G, ends,
                                 [sampling.seed_of(seed, step, slot) for slot in mine],
                                 max_response_tokens, max_tokens_in_flight)
    clock.append(time.perf_counter())  # generate

    # 2. rewards, and advantages within the G rollouts of each question
    rewards, parts = rewarding.score(rollouts.text, rollouts.owner.tolist(), asked, kind=reward)
    advantages = losses.group_advantages(torch.tensor(rewards, dtype=torch.float64), rollouts.owner).tolist()
    clock.append(time.perf_counter())  # reward

    # 3. prune: choose within each question, then add back until the number of survivors divides evenly
    ids, logps = ([row[keep].tolist() for row, keep in zip(table, rollouts.mask)]
                  for table in (rollouts.ids, rollouts.logps))
    known = {'advantages': advantages, 'reward/mean': rewards, 'rollout/length': [len(row) for row in ids],
             'rollout/truncated': rollouts.truncated.tolist(),
             **{f'reward/{name}': values for name, values in parts.items()}}
    told = []  # per question what every rank must know: numbers of its G trajectories, and which it keeps
    for own in (slice(i, i + G) for i in range(0, len(ids), G)):
        kept = mdap.select(ids[own], advantages[own], tau, ngram) if pruning == 'mdap' else list(range(G))
        told.append({'kept': kept, **{key: values[own] for key, values in known.items()}})
    told = [question for part in sampling.gather(told) for question in part]  # of all ranks, by slot
    kept = mdap.align([question['kept'] for question in told], [question['advantages'] for question in told],
                      align or world * updates_per_step)
    adaptive.record([len(indices) for indices in kept])

    # 4. only survivors travel, as ids; all ranks compute one plan: which rank trains what, in which update
    local = [sampling.Trajectory(slot, ids[j], logps[j], advantages[j], lengths[chosen[slot]] + len(ids[j]))
             for i, slot in enumerate(mine) for j in (i * G + k for k in kept[slot])]
    survivors = [t for part in sampling.gather(local) for t in part]  # K trajectories, question by question
    K, plan = len(survivors), []
    for u in range(updates_per_step):
        rows = survivors[u * K // updates_per_step:(u + 1) * K // updates_per_step]
        hands = mdap.deal([t.cost for t in rows], [t.slot for t in rows], world)
        hands = [[rows[i] for i in hand] for hand in hands]
        plan.append([sampling.chunks(hand, [t.cost for t in hand], tokens_per_microbatch) for hand in hands])
    my_batches = [batch for update in plan for batch in update[rank]]

    def prompt_of(slot, prompts=prompts, chosen=chosen):
        if slot not in prompts:  # of another rank: encode it here once more
            prompts[slot] = sampling.encode(questions[chosen[slot]], processor, config)
        return prompts[slot]
    clock.append(time.perf_counter())  # prune

    # 5. log-probs before the updates: old ones where the sampler's do not serve, the reference's if beta > 0
    with torch.no_grad():
        for batch in my_batches if old_logps == 'recompute' else []:
            for t, logps in zip(batch, policy(*sampling.pack(batch, prompt_of, device))[0].tolist()):
                t.logps = logps[:len(t.ids)]
        clock.append(time.perf_counter())  # old
        for batch in my_batches if reference else []:
            for t, logps in zip(batch, reference(*sampling.pack(batch, prompt_of, device))[0].tolist()):
                t.ref_logps = logps[:len(t.ids)]
        clock.append(time.perf_counter())  # ref

    # 6. updates: every micro-batch adds its share of a mean over all ranks, whose count is known beforehand
    policy.train(gradient_checkpointing)
    lr = learning_rate * min(1.0, (step + 1) / max(1, warmup_steps))
    for group in optimizer.param_groups:
        group['lr'] = lr
    totals, norms = torch.zeros(4, dtype=torch.float64), []
    for update in plan:
        rows = [t for hand in update for batch in hand for t in batch]
        tokens = sum(len(t.ids) for t in rows)
        count = tokens if average == 'token' else len(rows)
        passes = max(len(hand) for hand in update)  # every rank runs as many, or the collectives hang
        for i in range(passes):
            real = i < len(update[rank])
            batch = update[rank][i] if real else rows[:1]  # a stand-in
            inputs = sampling.pack(batch, prompt_of, device)
            weight = inputs[-1] & real  # [k, T], 0 for a stand-in
            with wrapped.no_sync() if world > 1 and i < passes - 1 else nullcontext():
                logps, entropy = wrapped(*inputs)  # [k, T]; DDP's own forward arms the reduction
                loss, stats = losses.policy_loss(
                    logps, sampling.pad([t.logps for t in batch], device),
                    torch.tensor([t.advantage for t in batch], device=device), weight,
                    ratio=ratio, clip_low=clip_low, clip_high=clip_high, dual_clip=dual_clip or None)
                shares = [losses.average(loss, weight, average, count), torch.zeros((), device=device)]
                if reference:
                    ref_logps = sampling.pad([t.ref_logps or t.logps for t in batch], device)
                    penalty = losses.kl_penalty(logps, ref_logps, kl)  # [k, T]
                    shares[1] = losses.average(penalty, weight, average, count)
                ((shares[0] + beta * shares[1]) * world).backward()  # DDP takes the mean of ranks: undo that
            shares += [losses.average(x, weight, count=tokens) for x in (stats['clip_fraction'], entropy)]
            totals += torch.stack(shares).detach().double().cpu()
        norm = torch.nn.utils.clip_grad_norm_(policy.parameters(), grad_clip or float('inf'))
        norms.append(norm.item())
        if norm.isfinite():  # the gradients, and so this decision, are the same on all ranks
            optimizer.step()
        else:
            say(f'warning: step {step + 1}: gradient norm {norms[-1]}, this update is skipped')
        optimizer.zero_grad(set_to_none=True)
    policy.eval()
    clock.append(time.perf_counter())  # update

    # 7. the step counts as done: report, evaluate, save
    step += 1
    if step % steps_per_epoch == 0:
        adaptive.end_epoch(step)
    totals = torch.tensor(sampling.gather(totals.tolist()), dtype=torch.float64).sum(0) / updates_per_step
    spent = [after - before for before, after in zip(clock, clock[1:])]
    N = len(told) * G
    record = {
        'step': step, 'epoch': epoch, 'rollouts_per_question': G,
        'trajectories_sampled': N, 'trajectories_trained': K,
        'tokens_sampled': sum(sum(question['rollout/length']) for question in told),
        'tokens_trained': sum(len(t.ids) for t in survivors),
        **{key: sum(sum(question[key]) for question in told) / N for key in told[0] if '/' in key},
        'prune/kept_mean': K / len(told), 'prune/kept_max': max(len(indices) for indices in kept),
        'prune/flat_groups': sum(not any(question['advantages']) for question in told) / len(told),
        **dict(zip(('loss/policy', 'loss/kl', 'loss/clip_fraction', 'loss/entropy'), totals.tolist())),
        'loss/grad_norm': sum(norms) / len(norms), 'lr': lr, 'time/step': sum(spent),
        **dict(zip((f'time/{name}' for name in 'generate reward prune old ref update'.split()), spent)),
        'memory/peak_gb': torch.cuda.max_memory_allocated() / 1e9 if cuda else
                          resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6}
    say('step {step}/{max_steps} epoch {epoch} | reward {reward/mean:.3f} accuracy {reward/accuracy:.3f} '
        'format {reward/format:.3f} | G {rollouts_per_question} trained {trajectories_trained}/'
        '{trajectories_sampled} length {rollout/length:.1f} | loss {loss/policy:+.3f} norm '
        '{loss/grad_norm:.2f} entropy {loss/entropy:.2f} | {time/step:.2f} s: generate '
        '{time/generate:.2f} update {time/update:.2f}'
        .format(max_steps=max_steps, **record))
    if print_every and step % print_every == 0:
        say(f'--- a sample: {asked[0]["problem"]}\n{rollouts.text[0]}\n'
            f'--- truth {asked[0]["answer"]}, reward {rewards[0]}, advantage {advantages[0]:.2f}')
    if step == max_steps or eval_every and step % eval_every == 0:
        record |= evaluation()
        if record['eval/accuracy'] > state['best']:  # "best" is replaced by strictly better scores only
            state['best'] = record['eval/accuracy']
            checkpoint('best')
    log(record)
    if step == max_steps or save_every and step % save_every == 0:
        checkpoint(f'step_{step:06d}', optimizer)
        if rank == 0:
            link = Path(out_dir, f'latest.{os.getpid()}')  # aside, then renamed
            link.symlink_to(f'step_{step:06d}')
            link.replace(Path(out_dir, 'latest'))
            for old in sorted(Path(out_dir).glob('step_??????'))[:-keep_checkpoints]:
                shutil.rmtree(old)
say(f'done: {step} steps, best eval/accuracy {state["best"]:.3f}; eval.py opens {out_dir}/latest')
if dist.is_initialized():
    dist.destroy_process_group()
