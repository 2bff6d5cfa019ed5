"""Accuracy and pass@k of any checkpoint on any data set.

    python eval.py --init_from=out/toy/best                                          as training evaluates
    python eval.py --init_from=out/toy/best --split=ood --temperature=1 --samples=16
    torchrun --nproc_per_node=8 eval.py config/geo3k.py --init_from=DIR_OR_HUB_ID

Takes train.py's settings too: a checkpoint brings its own, files and flags come on top. Prompts are never dropped: the
denominator is the whole split. The reward of training is the score of evaluation.
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
samples = 1            # answers per question; more than 1 gives mean accuracy and pass@k
output = ''            # a .json file for settings and every answer; '': none


def pass_at_k(n, c, k):
    """Unbiased estimate of the chance that one of k samples is right, from n samples of which c are (k <= n)."""
    if not 1 <= k <= n:
        raise ValueError(f'k = {k} must be between 1 and the number of samples, n = {n}')
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)


def evaluate(policy, processor, questions, *, ends, style, temperature, max_response_tokens, max_tokens_in_flight,
             top_p=1.0, samples=1, seed=1, reward='math', batch=64, progress=False):
    """Answer every question `samples` times -> one record per question, in order, the same on all ranks.

    The questions are split over ranks and counted exactly once; seeds go with the question, not with the rank.
    """
    rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    mine = list(range(rank, len(questions), world))
    records = []
    for start in tqdm(range(0, len(mine), batch), 'evaluating', disable=not progress or rank > 0):
        indices = mine[start:start + batch]
        asked = [questions[i] for i in indices]
        rollouts = sampling.generate(policy, processor, [sampling.encode(question, processor, **style) for question in asked],
                                     samples, ends, [sampling.seed_of(seed, i) for i in indices], max_response_tokens,
                                     max_tokens_in_flight, temperature, top_p)
        rewards, parts = rewarding.score(rollouts.text, rollouts.owner.tolist(), asked, kind=reward)
        for j, (i, question) in enumerate(zip(indices, asked)):
            own = slice(j * samples, (j + 1) * samples)
            records.append({'index': i, 'id': question.get('id', str(i)), 'problem': question['problem'],
                            'answer': question['answer'], 'responses': rollouts.text[own],
                            'truncated': rollouts.truncated[own].tolist(),
                            **{name: values[own] for name, values in parts.items()}})
    records = sorted((record for part in sampling.gather(records) for record in part), key=lambda record: record['index'])
    assert [record['index'] for record in records] == list(range(len(questions))), 'a question is missing or counted twice'
    return records


def summary(records):
    """Records -> means over all answers: accuracy, format (at most 0.5, as in the reward), truncated; and pass@k."""
    samples = len(records[0]['accuracy'])
    mean = {name: sum(sum(record[name]) for record in records) / len(records) / samples
            for name in ('accuracy', 'format', 'truncated')}
    rights = [round(sum(record['accuracy'])) for record in records]
    passes = {f'pass@{k}': sum(pass_at_k(samples, right, k) for right in rights) / len(records)
              for k in (1, 2, 4, 8, 16) if 1 < k <= samples}
    return {**mean, **passes}


def main():
    scripts = ('eval.py', 'train.py')
    here = [str(Path(__file__).parent / name) for name in scripts]
    config = configure(*here)
    trained = Path(config['init_from'], 'state.json')
    if trained.is_file():  # one of our checkpoints: evaluate it as it was trained, unless told otherwise
        config = configure(*here, base=json.loads(trained.read_text())['settings'] | {'init_from': config['init_from']})
    loading = models.setup(config)
    name, start = sampling.resolve(config)
    try:
        model, processor = models.load(start, **loading)
        questions = sampling.load_questions(config['eval_dataset'] or name, config['split'], config['eval_questions'])
    except (OSError, ValueError) as error:
        fail(f'{error} (init_from = {config["init_from"]!r})')
    records = evaluate(
        models.Policy(model, config['temperature']), processor, questions, ends=models.end_ids(model, processor),
        style={key: config[key] for key in ('system_prompt', 'examples', 'prompt_suffix')},
        temperature=config['eval_temperature'], top_p=config['eval_top_p'], samples=config['samples'], seed=config['seed'],
        max_response_tokens=config['max_response_tokens'], max_tokens_in_flight=config['max_tokens_in_flight'],
        reward=config['reward'], progress=True)
    scores = summary(records)
    if not dist.is_initialized() or dist.get_rank() == 0:
        how = 'greedy' if config['eval_temperature'] == 0 else \
            f'temperature {config["eval_temperature"]}, top-p {config["eval_top_p"]}, seed {config["seed"]}'
        print(f'{config["init_from"]} on {len(records)} questions of {name} {config["split"]}, {config["samples"]} each, {how}')
        print(' '.join(f'{key} {value:.3f}' for key, value in scores.items()))
        if config['output']:
            Path(config['output']).write_text(json.dumps({'config': config, 'scores': scores, 'answers': records}, indent=1))


if __name__ == '__main__':
    main()
