"""Accuracy and pass@k of any checkpoint on any data sets. No prompt is dropped and rules decide, also where
published scores need a judge model. Takes train.py's settings too: a checkpoint's own, then files and flags.
    python eval.py --init_from=out/toy/best                                       as training evaluates
    torchrun --nproc_per_node=8 eval.py config/geo3k.py --init_from=DIR_OR_HUB_ID --benchmarks=geo3k,wemath"""
import json
import math
from importlib.metadata import version
from pathlib import Path

import torch
import torch.distributed as dist
from pandas import DataFrame
from tqdm import trange

import model as models
import reward as rewarding
import rollout as sampling
from configurator import configure, fail

split = 'test'         # 'test', 'train' or another file of the data set's folder ('ood' for the toy)
benchmarks = ''        # data sets, with commas between; '': the one it was trained for
samples = 1            # answers per question, at least 1; more give pass@k
output = ''            # folder for scores and answers; an evaluation of the same settings goes on there

def pass_at_k(n, c, k):
    """Unbiased chance that one of k samples is right, estimated from n samples of which c are (k <= n)."""
    if not 1 <= k <= n:
        raise ValueError(f'k = {k} must be between 1 and the number of samples, n = {n}')
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)

def earlier(file, samples):
    """The records in `file`, if it exists, of the questions answered to the end; what is behind them goes."""
    written = file.read_bytes() if file.is_file() else b''
    lines = written.splitlines(True)[:written.count(b'\n') // samples * samples]  # a question's are in a row
    file.parent.mkdir(parents=True, exist_ok=True)
    file.open('ab').truncate(sum(map(len, lines)))
    return [json.loads(line) for line in lines]

def evaluate(policy, processor, questions, ends, config, temperature, top_p=1.0, samples=1, file=None):
    """Answer every question `samples` times -> one record per answer, in order, the same on all ranks.
    `config`: train.py's settings. file: a .jsonl that records are added to as they come, to go on from."""
    rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    records = models.gather(earlier(file, samples) if file and rank == 0 else [])[0]
    rest = sorted({*range(len(questions))} - {record['index'] for record in records})  # not in file
    for start in trange(0, len(rest), 64 * world, desc='evaluating', disable=not file or rank > 0):
        indices = rest[start + rank:start + 64 * world:world]  # ranks share them, each counts once
        asked = [questions[i] for i in indices]
        found = sampling.generate(
            policy, processor, [sampling.encode(question, processor, config) for question in asked], samples,
            ends, [sampling.seed_of(config['seed'], i) for i in indices],  # seeds go with the question
            config['max_response_tokens'], config['max_tokens_in_flight'], temperature, top_p)
        owner, texts, fresh = [t.slot for t in found], [t.text for t in found], []
        for n, scores in enumerate(rewarding.score(texts, owner, asked, config['reward'])):
            index, question = indices[owner[n]], asked[owner[n]]
            verdict = 'right' if scores['accuracy'] else 'unparsed' if scores.get('unparsed') else 'wrong'
            fresh.append({
                'id': str(question.get('id', index)), 'part': str(question.get('part') or ''), 'index': index,
                'sample': n % samples, 'prompt': question['problem'] + config['prompt_suffix'],
                'response': texts[n], 'extracted': rewarding.extract_boxed(texts[n]), 'verdict': verdict,
                'truth': question['answer'], **scores, 'truncated': found[n].truncated})
        fresh = [record for part in models.gather(fresh) for record in part]
        records += fresh
        if file and rank == 0:
            with file.open('a') as stream:
                stream.writelines(json.dumps(record) + '\n' for record in fresh)
    return sorted(records, key=lambda record: (record['index'], record['sample']))

def summary(records):
    """Records -> means over answers: accuracy, format (at most 0.5), what else was scored; mean@k, pass@k."""
    table = DataFrame(records).set_index(['index', 'sample'])
    scores = table.mean(numeric_only=True).to_dict()
    right = table.groupby('index')['accuracy'].sum()  # right answers to each question
    samples = len(table) // len(right)
    if samples > 1:
        scores[f'mean@{samples}'] = scores['accuracy']
        for k in (k for k in (1, 2, 4, 8, 16) if k <= samples):
            scores[f'pass@{k}'] = sum(pass_at_k(samples, round(c), k) for c in right) / len(right)
    return scores

def interval(*sets, draws=1000):
    """95 % bootstrap interval of accuracy, averaged over sets of records; drawn anew are whole questions."""
    generator, means = torch.Generator().manual_seed(0), 0
    for records in sets:
        questions = torch.tensor(DataFrame(records).groupby('index')['accuracy'].mean().to_numpy())
        picks = torch.randint(len(questions), (draws, len(questions)), generator=generator)
        means = means + questions[picks].mean(1) / len(sets)
    return dict(zip(('95% from', '95% to'), means.quantile(torch.tensor([0.025, 0.975]).double()).tolist()))

def breakdown(records):
    """Accuracy of parts (MathVerse versions, MathVision subjects, We-Math steps); We-Math's own scores."""
    table = DataFrame(records)
    scores = table[table['part'] > ''].groupby('part')['accuracy'].mean().to_dict()
    table[['problem', 'step']] = table['id'].str.rpartition('_')[[0, 2]]  # '2steps_7 2steps', '1' or 'multi'
    if 'multi' in table['step'].values:
        steps = table.set_index(['problem', 'sample', 'step'])['accuracy'].unstack().dropna(subset='multi')
        whole, every, some = steps.pop('multi'), steps.min(axis=1), steps.max(axis=1)  # 0 or 1
        scores['strict'] = (every * (1 + whole) / 2).mean()  # problem and all steps right: 1, all but it: 1/2
        scores['loose'] = (some * whole + every * (1 - whole) / 2).mean()  # it and a step: 1, all but it: 1/2
    return scores

def main():
    scripts = [Path(__file__).with_name(name) for name in ('eval.py', 'train.py')]
    trained = Path(configure(*scripts)['init_from'], 'state.json')
    state = json.loads(trained.read_text()) if trained.is_file() else {'settings': {}, 'step': 0}
    config = configure(*scripts, base=state['settings'])  # ours is evaluated as it was trained, unless told
    names = (config['benchmarks'] or config['eval_dataset'] or config['dataset']).split(',')
    *names, start = (sampling.resolve(name, config) for name in (*names, config['init_from']))
    try:
        rewarding.find(config['reward'])
        model, processor = models.load(start, **models.setup(config))
        sets = {n: sampling.load_questions(n, config['split'], config['eval_questions']) for n in names}
    except (OSError, ValueError) as error:
        fail(f'{error} (init_from = {config["init_from"]!r})')
    policy, ends = models.Policy(model, config['temperature']), models.end_ids(model, processor)
    how = [config[key] for key in ('eval_temperature', 'eval_top_p', 'samples')]
    free = 'output', 'benchmarks', 'device', 'cpu_threads', 'max_tokens_in_flight'  # change no answer
    settings = {key: value for key, value in config.items() if key not in free} | {'step': state['step']}
    settings |= {f'{name} version': version(name) for name in ('torch', 'transformers', 'math-verify')}
    sources = [rewarding.__file__, config['reward'].rpartition(':')[0] or rewarding.__file__]
    settings['reward version'] = sampling.seed_of(*(Path(file).read_text() for file in sources))
    folder, scores, answers = Path(config['output']), {}, {}
    for name, questions in sets.items():
        tag = sampling.seed_of(settings, questions['problem'][:], questions['answer'][:])
        file = folder / f'{name.replace("/", "_")}_{tag:08x}.jsonl' if config['output'] else None
        records = answers[name] = evaluate(policy, processor, questions, ends, config, *how, file=file)
        scores[name] = {'questions': len(questions), 'answers': len(records),
                        'truncated answers': sum(record['truncated'] for record in records),
                        'unparsed answers': sum(record['verdict'] == 'unparsed' for record in records)}
        scores[name] |= summary(records) | interval(records) | breakdown(records)
    if len(names) > 1:  # without the four counts
        scores['mean'] = DataFrame(scores).dropna()[4:].mean(axis=1).to_dict() | interval(*answers.values())
    if not dist.is_initialized() or dist.get_rank() == 0:
        if config['output']:
            report = folder / f'eval_{sampling.seed_of(settings, names):08x}.json'
            report.write_text(json.dumps(dict(settings=settings, scores=scores, answers=answers), indent=1))
        print(f'{config["init_from"]}, {config["split"]} split, temperature {how[0]}, top-p {how[1]}, '
              f'seed {config["seed"]}\n{DataFrame(scores).to_string(na_rep="", float_format="%.4g")}')

if __name__ == '__main__':
    main()
