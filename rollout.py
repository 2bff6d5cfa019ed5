"""Questions -> prompts -> trajectories, sampled in batches by the model in training, on its own device.
    questions = load_questions('geo3k', 'train')                                 problem, images, answer, ...
    prompts = [encode(question, processor, config) for question in questions]    unpadded tensors
    trajectories = generate(policy, processor, prompts, 8, ends, seeds, 2048)    8 of each question
A token is drawn by inversion at a uniform number from its question's seed, whatever the batch and the ranks,
from the distribution that is trained: a model's own defaults (top-k, top-p, penalties) play no part."""
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

import torch
from datasets import Dataset, Image, List, Value, disable_progress_bars
from tqdm import tqdm

from model import PER_TOKEN, collate

disable_progress_bars()
DATA = Path(__file__).parent / 'data'

def seed_of(*numbers):
    """A seed of 32 bits from several numbers (run seed, step, question): equal only where all are."""
    return crc32(repr(numbers).encode())

def resolve(name, config):
    """Name of a data set or model -> what load_questions and model.load know it by; the toy has levels."""
    level = f'toy_geo/level{config["toy_level"]}'
    return {'toy_geo': level, 'toy': str(DATA / level / 'warm_start')}.get(name, name)

def load_questions(dataset, split, limit=0):
    """data/NAME/SPLIT.parquet or a parquet / jsonl file -> rows with problem, answer, perhaps id, images."""
    path = Path(dataset)
    path = path if path.suffix in ('.parquet', '.jsonl', '.json') else DATA / path / f'{split}.parquet'
    if not path.is_file():
        raise FileNotFoundError(f'dataset = {dataset!r}: there is no file {path}; check the path, or make it '
                                f'with: python data/prepare.py {dataset}')
    rows = (Dataset.from_parquet if path.suffix == '.parquet' else Dataset.from_json)(str(path))
    if not {'problem', 'answer'} <= set(rows.column_names):
        raise ValueError(f'{path} has the columns {rows.column_names}, but problem and answer are needed; '
                         'data/prepare.py writes files with the right columns')
    rows = rows.cast_column('answer', Value('string'))  # also numbers
    if 'images' in rows.column_names:
        rows = rows.cast_column('images', List(Image()))
    return rows.select(range(limit)) if 0 < limit < len(rows) else rows

def encode(question, processor, config):
    """One question, `<image>` where a picture goes -> prompt: input_ids [P], attention_mask [P], pictures."""
    pictures = [x.point(lambda value: value / 256) if x.mode[0] == 'I' and x.getextrema()[1] > 255 else x
                for x in question.get('images') or []]  # 16 bits
    problem = question['problem'] or ''
    parts, sees = (problem + config['prompt_suffix']).split('<image>'), hasattr(processor, 'image_processor')
    if not problem.strip() or question.get('answer', '?') in (None, ''):
        raise ValueError(f'problem {problem!r} and answer {question.get("answer")!r} must both be there')
    if len(parts) - 1 != len(pictures) or pictures and not sees:
        raise ValueError(f'question {question.get("id")!r} has {len(parts) - 1} <image> marks and '
                         f'{len(pictures)} images, and the model sees {"them" if sees else "none"}: '
                         'all must agree; correct the row, leave it out or take another model')
    turns = [('system', config['system_prompt'])] if config['system_prompt'] else []
    for asked, answered in config['examples']:  # shown as earlier turns
        turns += [('user', asked), ('assistant', answered)]
    messages, image = [], {'type': 'image'}
    for role, *texts in [*turns, ('user', *parts)]:
        mixed = sum(([image, {'type': 'text', 'text': text}] if text else [image] for text in texts), [])[1:]
        messages.append({'role': role, 'content': mixed if sees else texts[0]})  # text models want a string
    text = '\n'.join(str(message['content']) for message in messages)  # a base model gets plain lines
    if processor.chat_template:
        text = processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    encoded = processor(text=[text], return_tensors='pt', **({'images': pictures} if pictures else {}),
                        add_special_tokens=not processor.chat_template)  # a template writes its own
    return {key: value[0] if key in PER_TOKEN else value for key, value in encoded.items()}

def usable(questions, processor, config, say):
    """Indices of the questions with a prompt of at most max_prompt_tokens; says what is wrong with others."""
    fitting, limit = [], config['max_prompt_tokens']
    names = questions['id'][:] if 'id' in questions.column_names else range(len(questions))
    for i, name in enumerate(tqdm(names, 'measuring', leave=False, disable=None if say is print else True)):
        try:
            length = len(encode(questions[i], processor, config)['input_ids'])
            if length > limit:
                raise ValueError(f'its prompt of {length} tokens is longer than max_prompt_tokens = {limit}')
            fitting.append(i)
        except Exception as error:  # broken pictures fail in many ways
            say(f'warning: question {name!r} is left out: {error}')
    if len(fitting) < len(names) or len({*names}) < len(names):
        say(f'warning: {len(names) - len(fitting)} of {len(names)} questions are left out, '
            f'{len(names) - len({*names})} have the id of another one')
    return fitting

@dataclass
class Trajectory:
    """One response from sampling to the updates: plain numbers and text, to travel between ranks."""
    slot: int          # which of the step's questions it answers
    ids: list          # its T tokens, up to and including the first end id
    logps: list        # log-probs of the tokens under the sampling distribution
    cost: int          # tokens of prompt and response
    truncated: bool = False  # no end id came within max_response_tokens
    text: str = ''           # decoded, special tokens removed
    parts: dict = None       # of its reward
    reward: float = 0.0
    advantage: float = 0.0
    ref_logps: list = None

def pad(rows, device):
    """K lists of numbers -> [K, T] with zeros on the right."""
    return torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True).to(device)

def pack(trajectories, prompts, device):
    """K trajectories -> Policy.forward's Q prompts (each once), owner [K], ids [K, T], mask [K, T]."""
    slots = list(dict.fromkeys(t.slot for t in trajectories))
    owner = torch.tensor([slots.index(t.slot) for t in trajectories], device=device)
    mask = pad([[True] * len(t.ids) for t in trajectories], device)  # by length, never by comparing ids
    return [prompts[slot] for slot in slots], owner, pad([t.ids for t in trajectories], device), mask

def chunks(rows, costs, budget):
    """Cut list `rows` so that number x largest cost of a piece is within budget; a lone row may exceed it."""
    pieces, largest = [], 0
    for row, cost in zip(rows, costs, strict=True):
        largest = max(largest, cost)
        if not pieces or (len(pieces[-1]) + 1) * largest > budget:
            pieces.append([])
            largest = cost
        pieces[-1].append(row)
    return pieces

def draw(logits, uniform, greedy=False, top_p=1.0):
    """Draw by inversion: logits [n, V], uniform [n] in [0, 1) -> ids [n], log-probs [n] before any top-p."""
    logps = logits.log_softmax(-1)
    if greedy:
        return logps.argmax(-1), logps.amax(-1)
    probs = logps.exp()  # [n, V]
    if top_p < 1:
        probs, order = probs.sort(-1, descending=True)
        probs = probs.masked_fill(probs.cumsum(-1) - probs >= top_p, 0.0)  # smallest set to reach top_p
    below = probs.cumsum(-1)  # [n, V]
    total = below[:, -1:]
    target = torch.minimum(uniform[:, None] * total, torch.nextafter(total, torch.zeros_like(total)))
    ids = torch.searchsorted(below, target, right=True)  # [n, 1]: first id whose cumulated mass exceeds it
    ids = order.gather(-1, ids) if top_p < 1 else ids
    return ids[:, 0], logps.gather(-1, ids)[:, 0]

@torch.no_grad()
def generate(policy, processor, prompts, count, ends, seeds, max_response_tokens,
             max_tokens_in_flight=2 ** 18, temperature=None, top_p=1.0):
    """`count` responses to each of the Q encoded `prompts` -> N = Q x count Trajectory, question by question.
    ends: ids that end a response; seeds: one per question; temperature None: the policy's own, 0: greedy;
    max_tokens_in_flight bounds rows x (prompt + response) of one chunk, and so the cache."""
    if not prompts:
        return []
    T, tokenizer = max_response_tokens, getattr(processor, 'tokenizer', processor)
    uniforms = torch.cat([torch.rand(count, T, generator=torch.Generator().manual_seed(s)) for s in seeds])
    lengths = torch.tensor([len(prompt['input_ids']) for prompt in prompts]).repeat_interleave(count)  # [N]
    by_length, order = lengths.sort(stable=True)  # little padding, and a question's rows stay together
    trajectories = [None] * len(lengths)
    for rows in chunks(order.tolist(), (by_length + T).tolist(), max_tokens_in_flight):
        used, local = (torch.tensor(rows) // count).unique(return_inverse=True)  # questions, each row's own
        found = sample(policy, [prompts[s] for s in used], local, uniforms[rows], ends, temperature, top_p)
        for row, (ids, logps) in zip(rows, found):
            cost, text = int(lengths[row]) + len(ids), tokenizer.decode(ids, skip_special_tokens=True)
            trajectories[row] = Trajectory(row // count, ids, logps, cost, ids[-1] not in ends, text)
    return trajectories

def sample(policy, prompts, owner, uniforms, ends, temperature, top_p):
    """Prefill each prompt once, fan its cache out to its rows (owner [n]), sample; finished rows drop out
    -> n pairs of lists: ids, log-probs. Caches of any kind can pick rows: the library calls it reordering."""
    (n, T), device = uniforms.shape, policy.forbidden.device
    batch = collate(prompts, device)
    owner, uniforms, ends = owner.to(device), uniforms.to(device), torch.tensor(ends, device=device)
    hidden, cache, position = policy.prefill(batch)
    hidden, position = hidden[:, -1][owner], position[owner]  # [n, H], [n]
    cache.reorder_cache(owner)
    seen = torch.nn.functional.pad(batch['attention_mask'][owner], (0, T), value=1)  # [n, P + T]
    ids, logps = torch.full((n, T), -1, device=device), torch.zeros(n, T, device=device)  # -1: no token
    active = torch.arange(n, device=device)  # rows that still speak
    for t in range(T):
        token, logp = draw(policy.logits(hidden, temperature), uniforms[active, t], temperature == 0, top_p)
        ids[active, t], logps[active, t] = token, logp
        on = (~torch.isin(token, ends)).nonzero()[:, 0]
        if len(on) < len(active):
            active, token, position, seen = active[on], token[on], position[on], seen[on]
            cache.reorder_cache(on)
        if len(active) == 0 or t == T - 1:
            break
        hidden = policy.extend(cache, token[:, None], seen[:, :t + 1 - T], position + t)[:, 0]  # [n, H]
    return [(row[row >= 0].tolist(), logp[row >= 0].tolist()) for row, logp in zip(ids.cpu(), logps.cpu())]
