"""Accuracy and pass@k of any checkpoint on any data set.

    python eval.py --init_from=out/toy/best                                       as training evaluates
    python eval.py --init_from=out/toy/best --split=ood --eval_temperature=1 --samples=16
    torchrun --nproc_per_node=8 eval.py config/geo3k.py --init_from=DIR_OR_HUB_ID

Takes train.py's settings too: a checkpoint brings its own, files and flags come on top. No prompt is dropped.
"""
import json
import math
from pathlib import Path

import torch.distributed as dist
from tqdm import tqdm

import model as models
import reward as rewarding
import rollout as sampling
from configurator import configure, fail

split = 'test'         # 'test', 'train' or another file of the data set's folder ('ood' for the toy)
samples = 1            # answers per question, at least 1; more give pass@k
output = ''            # a .json file for settings and every answer; '': none

def pass_at_k(n, c, k):
    """Unbiased chance that one of k samples is right, estimated from n samples of which c are (k <= n)."""
    if not 1 <= k <= n:
        raise ValueError(f'k = {k} must be between 1 and the number of samples, n = {n}')
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)

def evaluate(policy, processor, questions, ends, config, temperature, top_p=1.0, samples=1, progress=False):
    """Answer every question `samples` times -> one record per question, in order, the same on all ranks.
    Ranks share the questions, each counts once, seeds go with the question. `config`: train.py's settings."""
    rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    n, records = len(questions), []
    for start in tqdm(range(rank, n, 64 * world), 'evaluating', disable=not progress or rank > 0):
        indices = range(n)[start:start + 64 * world:world]
        asked = [questions[i] for i in indices]
        prompts = [sampling.encode(question, processor, config) for question in asked]
        found = sampling.generate(
            policy, processor, prompts, samples, ends, [sampling.seed_of(config['seed'], i) for i in indices],
            config['max_response_tokens'], config['max_tokens_in_flight'], temperature, top_p)
        scores = rewarding.score([t.text for t in found], [t.slot for t in found], asked, config['reward'])
        for j, (i, question) in enumerate(zip(indices, asked)):
            own = slice(j * samples, (j + 1) * samples)
            records.append({'index': i, 'id': question.get('id', str(i)), 'problem': question['problem'],
                            'answer': question['answer'], 'responses': [t.text for t in found[own]],
                            'truncated': [t.truncated for t in found[own]],
                            **{name: [row[name] for row in scores[own]] for name in scores[0]}})
    records = {record['index']: record for part in sampling.gather(records) for record in part}
    return [records[i] for i in range(n)]

def summary(records):
    """Records -> means over answers: accuracy, format (at most 0.5) and what else was scored; and pass@k."""
    samples = len(records[0]['accuracy'])
    scores = {name: sum(sum(record[name]) for record in records) / len(records) / samples
              for name, values in records[0].items() if isinstance(values, list) and name != 'responses'}
    for k in (k for k in (2, 4, 8, 16) if k <= samples):
        chances = [pass_at_k(samples, round(sum(record['accuracy'])), k) for record in records]
        scores[f'pass@{k}'] = sum(chances) / len(records)
    return scores

def main():
    scripts = [Path(__file__).with_name(name) for name in ('eval.py', 'train.py')]
    config = configure(*scripts)
    trained = Path(config['init_from'], 'state.json')
    if trained.is_file():  # one of our checkpoints: evaluate it as it was trained, unless told otherwise
        config = configure(*scripts, base=json.loads(trained.read_text())['settings'])
    dataset, start = sampling.resolve(config)
    dataset = config['eval_dataset'] or dataset
    try:
        rewarding.find(config['reward'])
        model, processor = models.load(start, **models.setup(config))
        questions = sampling.load_questions(dataset, config['split'], config['eval_questions'])
    except (OSError, ValueError) as error:
        fail(f'{error} (init_from = {config["init_from"]!r})')
    policy, ends = models.Policy(model, config['temperature']), models.end_ids(model, processor)
    how = [config[key] for key in ('eval_temperature', 'eval_top_p', 'samples')]
    records = evaluate(policy, processor, questions, ends, config, *how, progress=True)
    scores = summary(records)
    if not dist.is_initialized() or dist.get_rank() == 0:
        print(f'{config["init_from"]} on {len(records)} questions of {dataset} {config["split"]}, '
              f'temperature {how[0]}, top-p {how[1]}, {how[2]} answers each, seed {config["seed"]}')
        print(' '.join(f'{key} {value:.3f}' for key, value in scores.items()))
        if config['output']:
            answers = {'config': config, 'scores': scores, 'answers': records}
            Path(config['output']).write_text(json.dumps(answers, indent=1))

if __name__ == '__main__':
    main()
