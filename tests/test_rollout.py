"""Sampling and log-probs of real small models (Qwen2.5-VL with pictures, Llama)
against the library's own passes."""
import subprocess
import sys

import numpy as np
import pytest
import torch
import transformers
from helpers import ROOT, sharpen, stack, tiny_llama, tiny_qwen_vl, word_tokenizer
from PIL import Image
from transformers import GenerationConfig, Qwen2VLImageProcessorPil

import rollout
from model import PictureProcessor, Policy, collate, end_ids
from rollout import Trajectory, chunks, draw, load_questions, pack, seed_of

PLAIN = {'system_prompt': '', 'examples': [], 'prompt_suffix': ''}
random = np.random.default_rng(0)


def encode(question, processor, **settings):
    return rollout.encode(question, processor, PLAIN | settings)


def generate(*args, **settings):
    return stack(rollout.generate(*args, **settings))


def picture(width, height):
    return Image.fromarray(random.integers(0, 255, (height, width, 3), dtype=np.uint8))


# ragged: one picture, two pictures, none; two of the pictures have equally many tokens but other grids
QUESTIONS = [
    {'id': 'a', 'problem': '<image>w1 w2', 'images': [picture(56, 112)]},
    {'id': 'b', 'problem': 'w3 <image> w4 <image> w5 w6 w7', 'images': [picture(112, 56), picture(84, 84)]},
    {'id': 'c', 'problem': 'w1 w1 w1', 'images': []},
]
TEXTS = [{'id': str(n), 'problem': ' '.join(f'w{(7 * n + i) % 90}' for i in range(n))}
         for n in (3, 7, 8, 15, 31)]


def setting(name):
    """'examples': five texts of 67 to 97 tokens that begin with the same 63."""
    model, processor = tiny_qwen_vl() if name == 'qwen_vl' else tiny_llama()
    examples = [[' '.join(f'w{i}' for i in range(40)), 'w7 w8']] if name == 'examples' else []
    questions = QUESTIONS if name == 'qwen_vl' else TEXTS
    return model, processor, [encode(q, processor, examples=examples) for q in questions]


def teacher_forced(model, policy, prompt, ids):
    """Plain log-probs of one response by the library's full forward pass, one unpadded sequence, [T]."""
    batch = collate([prompt], 'cpu')
    extra = {key: value for key, value in batch.items()
             if key not in ('input_ids', 'attention_mask', 'mm_token_type_ids')}
    if 'mm_token_type_ids' in batch:
        extra['mm_token_type_ids'] = torch.nn.functional.pad(batch['mm_token_type_ids'], (0, len(ids)))
    logits = model(input_ids=torch.cat([batch['input_ids'], ids[None]], 1),
                   **extra).logits[0, -len(ids) - 1:-1]
    logits = logits.masked_fill(policy.forbidden, -torch.inf) / policy.temperature
    return logits.log_softmax(-1).gather(-1, ids[:, None])[:, 0]


@pytest.mark.parametrize('temperature', [0.6, 1.0])
@pytest.mark.parametrize('name', ['llama', 'examples', 'qwen_vl'])
@torch.no_grad()
def test_logps_of_sampler_and_policy_equal_plain_forward(name, temperature):
    """S4, S10, T5, V3, V4, V9, T4: left padding, ragged pictures, both temperatures; the sampler's and both
    log-prob paths, on the ids that were sampled."""
    model, processor, prompts = setting(name)
    policy = Policy(model, temperature)
    rollouts = generate(policy, processor, prompts, 4, [2], range(len(prompts)), 12)
    plain = torch.zeros(rollouts.logps.shape)
    for row, (owner, ids, mask) in enumerate(zip(rollouts.owner, rollouts.ids, rollouts.mask)):
        plain[row, :mask.sum()] = teacher_forced(model, policy, prompts[owner], ids[mask])
    assert (rollouts.logps - plain)[rollouts.mask].abs().max() < 1e-4
    for policy.share_prefix in (True, False):
        for rows in (torch.arange(len(plain)),
                     torch.tensor([1, 4, 5]), torch.tensor([0, 8, 9, 10, 11])):  # after pruning too
            logps, entropy = policy(prompts, rollouts.owner[rows], rollouts.ids[rows], rollouts.mask[rows])
            assert (logps - plain[rows]).abs()[rollouts.mask[rows]].max() < 1e-4
            assert (logps[~rollouts.mask[rows]] == 0).all() and (entropy >= 0).all()


@pytest.mark.parametrize('name', ['llama', 'examples', 'qwen_vl'])
def test_gradients_of_shared_prefix_equal_full_sequences(name):
    model, processor, prompts = setting(name)
    policy = Policy(model, 0.8)
    rollouts = generate(policy, processor, prompts, 3, [2], range(len(prompts)), 10)
    weights = torch.rand(rollouts.logps.shape)
    gradients = []
    for policy.share_prefix in (True, False):
        model.zero_grad()
        logps, _ = policy(prompts, rollouts.owner, rollouts.ids, rollouts.mask)
        (logps * weights).sum().backward()
        gradients.append({key: weight.grad.clone() for key, weight in model.named_parameters()})
    for key, gradient in gradients[0].items():
        assert torch.isfinite(gradient).all()
        assert (gradient - gradients[1][key]).abs().max() < 1e-4 * max(1.0, gradient.abs().max()), key


@pytest.mark.parametrize('name', ['llama', 'examples', 'qwen_vl'])
def test_greedy_equals_library_generate(name):
    """S1, S3, T4, V5: one at a time by `generate`, batched by ours;
    shipped sampling defaults change nothing."""
    model, processor, prompts = setting(name)
    policy = Policy(model)
    plain = []
    for prompt in prompts:
        model.generation_config = GenerationConfig(
            max_new_tokens=12, eos_token_id=2, pad_token_id=0, do_sample=False,
            suppress_tokens=policy.forbidden.nonzero()[:, 0].tolist() or None)
        batch = collate([prompt], 'cpu')
        plain.append(model.generate(**batch)[0, batch['input_ids'].shape[1]:].tolist())
    model.generation_config = GenerationConfig(
        temperature=1e-6, top_k=1, top_p=0.001, repetition_penalty=1.05, do_sample=True, eos_token_id=2)
    for _ in range(2):  # a second time: no state is left behind by the first
        rollouts = generate(policy, processor, prompts, 1, [2], range(len(prompts)), 12, temperature=0.0)
        assert [ids[mask].tolist() for ids, mask in zip(rollouts.ids, rollouts.mask)] == plain


def test_checkpoint_defaults_do_not_sharpen_sampling():
    """S1, S2: a shipped top_k = 1 is ignored,
    and no hidden top-k of 50 cuts a flat distribution over 200 ids."""
    model, processor = tiny_llama(200)
    model.generation_config = GenerationConfig(
        temperature=1e-6, top_k=1, top_p=0.001, repetition_penalty=1.05)
    model.lm_head.weight.data.zero_()
    prompt = encode(TEXTS[0], processor)
    rollouts = generate(Policy(model), processor, [prompt], 4000, [2], [0], 1)
    counts = torch.bincount(rollouts.ids[:, 0], minlength=200)
    assert (counts > 0).all() and counts.max() < 60  # 20 expected of each


def test_draw_follows_the_distribution():
    logits = torch.tensor([[0.0, 1.0, 2.0, torch.finfo(torch.float32).min, 0.5]])
    uniform = (torch.arange(10_000) + 0.5) / 10_000
    ids, logps = draw(logits.expand(10_000, -1), uniform)
    share = torch.bincount(ids, minlength=5) / 10_000
    assert (share - logits[0].softmax(-1)).abs().max() < 1e-3 and share[3] == 0
    assert torch.allclose(logps, logits[0].log_softmax(-1)[ids])
    nearly_one = torch.full((1,), 1 - 2 ** -24)
    # the last id with mass, never the forbidden one behind it
    assert draw(logits[:, :4], nearly_one)[0].item() == 2
    kept = torch.bincount(draw(logits.expand(10_000, -1), uniform, top_p=0.75)[0], minlength=5) / 10_000
    assert (kept > 0).tolist() == [False, True, True, False, False]  # 0.58, then 0.79 reaches 0.75
    assert torch.allclose(kept[1] / kept[2], torch.exp(torch.tensor(-1.0)), atol=1e-3)


def test_same_seed_same_ids_whatever_the_batch():
    """The ids of a question depend on its seed alone: not on neighbours, chunks, or how many finish early."""
    model, processor, prompts = setting('qwen_vl')
    policy = Policy(model)
    together = generate(policy, processor, prompts, 4, [2, 9, 11], [5, 6, 7], 14)
    assert together.mask.sum(1).unique().numel() > 2  # ragged, or the test says little
    for number, prompt in enumerate(prompts):
        for budget in (1, 10 ** 6):
            alone = generate(policy, processor, [prompt], 4, [2, 9, 11], [5 + number], 14, budget)
            assert alone.text == together.text[4 * number:4 * number + 4]
    other = generate(policy, processor, prompts, 4, [2, 9, 11], [8, 9, 10], 14)
    assert other.text != together.text
    assert len(set(together.text)) > 6  # the rows of a group differ


def test_end_tokens_are_part_of_the_response():
    """T1, T3: every end id ends, the end token is in the mask, nothing after it; pad may equal the end id."""
    model, processor, prompts = setting('llama')
    rollouts = generate(Policy(model), processor, prompts, 8, [0, 2, 9, 30], range(5), 20)  # 0 is the pad id
    ended = 0
    for ids, mask, truncated in zip(rollouts.ids, rollouts.mask, rollouts.truncated):
        length = int(mask.sum())
        assert mask[:length].all() and not mask[length:].any()
        assert not torch.isin(ids[:length - 1], torch.tensor([0, 2, 9, 30])).any()
        ended += int(ids[length - 1] in (0, 2, 9, 30))
        assert bool(truncated) == (int(ids[length - 1]) not in (0, 2, 9, 30))
    assert 0 < ended < len(rollouts.ids)
    model.generation_config.eos_token_id = [2, 9]
    model.config.eos_token_id = 30
    assert end_ids(model, processor) == [2, 9, 30]


def test_trajectories_come_question_by_question():
    """S9: in the order of the questions, whatever the order of their lengths; the cost counts the prompt."""
    model, processor = tiny_llama()
    prompts = [encode(question, processor) for question in reversed(TEXTS)]
    trajectories = rollout.generate(Policy(model), processor, prompts, 3, [2, 9], range(5), 12, 100)
    assert [t.slot for t in trajectories] == [slot for slot in range(5) for _ in range(3)]
    for t in trajectories:
        assert len(t.ids) == len(t.logps) <= 12 and t.cost == len(prompts[t.slot]['input_ids']) + len(t.ids)
        assert type(t.truncated) is bool and t.truncated == (t.ids[-1] not in (2, 9))
        assert t.text == processor.decode(t.ids, skip_special_tokens=True)
    assert rollout.generate(Policy(model), processor, [], 3, [2], [], 12) == []


def test_sampling_feeds_single_tokens(monkeypatch):
    """S8: one prefill, then a token at a time from the cache, also if the model checkpoints in training."""
    model, processor, prompts = setting('qwen_vl')
    policy, widths = Policy(model), []
    plain = generate(policy, processor, prompts, 2, [2], range(len(prompts)), 6)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={'use_reentrant': False})
    policy.train(), policy.eval()
    hook = model.base_model.language_model.register_forward_hook(
        lambda module, args, kwargs, output: widths.append(output[0].shape[1]), with_kwargs=True)
    checkpointed = generate(policy, processor, prompts, 2, [2], range(len(prompts)), 6)
    hook.remove()
    assert torch.equal(plain.ids, checkpointed.ids)
    assert widths == [max(len(prompt['input_ids']) for prompt in prompts)] + [1] * (plain.ids.shape[1] - 1)


@torch.no_grad()
def test_logits_exist_in_pieces(monkeypatch):
    """P2: no more numbers at once than LOGITS_AT_ONCE, of response tokens only, and the same log-probs."""
    model, processor, prompts = setting('llama')
    policy, sizes = Policy(model), []
    rollouts = generate(policy, processor, prompts, 4, [2], range(len(prompts)), 12)
    whole = policy(prompts, rollouts.owner, rollouts.ids, rollouts.mask)
    monkeypatch.setattr('model.LOGITS_AT_ONCE', 5 * 120)
    hook = policy.head.register_forward_hook(lambda module, args, output: sizes.append(output.shape))
    pieces = policy(prompts, rollouts.owner, rollouts.ids, rollouts.mask)
    hook.remove()
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(whole, pieces))
    assert {shape[-1] for shape in sizes} == {120} and max(shape[0] for shape in sizes) == 5
    assert sum(shape[0] for shape in sizes) == rollouts.mask.sum()


MEASURE = """
import resource, sys, torch, transformers
sys.path.insert(0, sys.argv[1])
import model
torch.manual_seed(0)
llama = transformers.LlamaForCausalLM(transformers.LlamaConfig(
    vocab_size=151_936, hidden_size=64, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
    tie_word_embeddings=True))
ids = torch.randint(151_936, (8, 512))
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
policy = model.Policy(llama)
prompt = {'input_ids': torch.arange(2), 'attention_mask': torch.ones(2, dtype=torch.long)}
before = peak()
if sys.argv[2] == 'ours':
    logps, _ = policy([prompt], torch.zeros(8, dtype=torch.long), ids, torch.ones(8, 512, dtype=torch.bool))
else:
    logits = llama(torch.cat([torch.arange(2).expand(8, 2), ids], 1)).logits.float()[:, 1:-1]
    logps = logits.log_softmax(-1).gather(-1, ids[..., None])[..., 0]
logps.sum().backward()
print(peak() - before, logps.sum().item())
"""


@pytest.mark.slow
def test_memory_of_log_probs():
    """P2: 8 x 512 tokens of 151,936 words, forward and backward: at most a sixth of what fp32 logits take."""
    (ours, same), (theirs, sums) = (
        map(float, subprocess.run([sys.executable, '-c', MEASURE, str(ROOT), which], text=True, check=True,
                                  capture_output=True, timeout=600).stdout.split())
        for which in ('ours', 'logits'))
    print(f'GB: {ours:.2f} in pieces, {theirs:.2f} at once, {theirs / ours:.1f} times')
    assert same == pytest.approx(sums, rel=1e-5) and ours * 6 < theirs


def test_what_follows_the_end_changes_nothing():
    """T3: ids behind the end are neither seen nor scored."""
    model, processor, prompts = setting('llama')
    policy = Policy(model)
    ids = torch.tensor([[14, 15, 2]])
    short, _ = policy(prompts[:1], torch.zeros(1, dtype=torch.long), ids, torch.ones(1, 3, dtype=torch.bool))
    for policy.share_prefix in (True, False):
        for behind in (3, 7):
            long = torch.cat([ids, torch.randint(3, 100, (1, behind))], 1)
            mask = torch.arange(3 + behind)[None] < 3
            logps, _ = policy(prompts[:1], torch.zeros(1, dtype=torch.long), long, mask)
            assert (logps[:, :3] - short).abs().max() < 1e-5


def test_placeholders_are_never_sampled():
    """V1: even when the model wants nothing but the picture placeholder."""
    model, processor, prompts = setting('qwen_vl')
    policy = Policy(model)
    assert policy.forbidden.nonzero()[:, 0].tolist() == [3, 4, 5, 6]
    model.lm_head.weight.data[3:7] = 50 * model.lm_head.weight.data[20]
    for temperature in (None, 0.0):
        rollouts = generate(policy, processor, prompts, 20, [2], range(3), 6, temperature=temperature)
        assert not torch.isin(rollouts.ids[rollouts.mask], torch.tensor([3, 4, 5, 6])).any()


def test_library_generate_takes_over_where_the_cache_cannot_fan_out():
    """The fallback follows the same rules: own distribution, end tokens in the mask,
    log-probs of the policy."""
    for name in ('llama', 'qwen_vl'):
        model, processor, prompts = setting(name)
        model.generation_config = GenerationConfig(
            temperature=1e-6, top_k=1, repetition_penalty=1.05, do_sample=True)
        shipped = model.generation_config
        policy = Policy(model, 0.9)
        greedy = generate(policy, processor, prompts, 1, [2, 9], range(len(prompts)), 10, temperature=0.0)
        policy.can_share = policy.share_prefix = False
        assert generate(policy, processor, prompts, 1, [2, 9], range(len(prompts)), 10,
                        temperature=0.0).text == greedy.text
        rollouts = generate(policy, processor, prompts, 6, [2, 9], range(len(prompts)), 10)
        assert model.generation_config is shipped and len(set(rollouts.text)) > 6
        policy.share_prefix = True  # the other path agrees on the log-probs
        logps, _ = policy(prompts, rollouts.owner, rollouts.ids, rollouts.mask)
        assert (logps - rollouts.logps)[rollouts.mask].abs().max() < 1e-4


def other_architecture(name):
    """A small model whose layers keep something else than all keys and values: recurrent states, windows."""
    linear = dict(linear_key_head_dim=8, linear_value_head_dim=8, linear_num_key_heads=2,
                  linear_num_value_heads=2)
    experts = dict(num_experts=2, num_experts_per_tok=1, moe_intermediate_size=16,
                   shared_expert_intermediate_size=16)
    kind, config, extra = {
        'Qwen3Next': ('Qwen3NextForCausalLM', 'Qwen3NextConfig', linear | experts),
        'Qwen3.5': ('Qwen3_5ForCausalLM', 'Qwen3_5TextConfig', linear),
        'Mistral': ('MistralForCausalLM', 'MistralConfig', dict(sliding_window=8)),
        'Lfm2': ('Lfm2ForCausalLM', 'Lfm2Config', dict(layer_types=['conv', 'full_attention'] * 2))}[name]
    model = sharpen(getattr(transformers, kind)(getattr(transformers, config)(
        vocab_size=120, hidden_size=32, intermediate_size=32, num_hidden_layers=4, num_attention_heads=2,
        num_key_value_heads=1, head_dim=16, eos_token_id=2, pad_token_id=0, **extra)))
    return model, word_tokenizer()


@pytest.mark.parametrize('name', ['Qwen3Next', 'Qwen3.5', 'Mistral', 'Lfm2'])
def test_other_caches_fan_out_in_sampling_only(name):
    """Recurrent states and windows can not be shared in updates, but our sampling picks their rows: greedily
    what the library generates, and log-probs are those of full sequences."""
    model, processor = other_architecture(name)
    policy = Policy(model)
    assert not policy.can_share and not policy.share_prefix
    prompts = [encode({'problem': ' '.join(f'w{(i * 7 + j) % 90}' for j in range(n))}, processor)
               for i, n in enumerate([3, 12, 7])]
    plain = []
    for prompt in prompts:
        model.generation_config = GenerationConfig(max_new_tokens=14, eos_token_id=2, pad_token_id=0)
        batch = collate([prompt], 'cpu')
        plain.append(model.generate(**batch)[0, batch['input_ids'].shape[1]:].tolist())
    greedy = generate(policy, processor, prompts, 1, [2], range(3), 14, temperature=0.0)
    assert [ids[mask].tolist() for ids, mask in zip(greedy.ids, greedy.mask)] == plain
    rollouts = generate(policy, processor, prompts, 6, [2, 9, 30], range(3), 14)
    assert 0 < rollouts.truncated.sum() < 18, 'no row leaves the batch: no test'
    logps, _ = policy(prompts, rollouts.owner, rollouts.ids, rollouts.mask)
    assert (logps - rollouts.logps)[rollouts.mask].abs().max() < 1e-4


# -------------------------------------------------------------------------------------------------- questions


def test_encode_checks_pictures_and_builds_turns():
    model, processor, _ = setting('qwen_vl')
    with pytest.raises(ValueError, match="'x' has 2 <image> marks and 1 images"):
        encode({'id': 'x', 'problem': '<image> <image> w1', 'images': [picture(56, 56)]}, processor)
    with pytest.raises(ValueError, match='the model sees none'):
        encode({'id': 'x', 'problem': '<image> w1', 'images': [picture(56, 56)]}, word_tokenizer())
    for reader in (processor, processor.tokenizer):
        prompt = encode({'problem': 'w9'}, reader,
                        system_prompt='w1', examples=[['w2', 'w3']], prompt_suffix=' w4')
        assert reader.decode(prompt['input_ids']).split() == (
            '<|im_start|> system w1 <|im_end|> '
            '<|im_start|> user w2 <|im_end|> <|im_start|> assistant w3 <|im_end|> '
            '<|im_start|> user w9 w4 <|im_end|> <|im_start|> assistant').split()


def test_one_bos():
    """T6: a template that writes the first token and a tokenizer that would add it again give one."""
    tokenizer = word_tokenizer()
    tokenizer.add_special_tokens({'bos_token': '<|bos|>'})
    from tokenizers.processors import TemplateProcessing
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single='<|bos|> $A', special_tokens=[('<|bos|>', tokenizer.bos_token_id)])
    assert tokenizer('w1')['input_ids'][0] == tokenizer.bos_token_id
    tokenizer.chat_template = '<|bos|> {{ messages[0].content }}'
    templated = encode({'problem': 'w1 w2'}, tokenizer)['input_ids'].tolist()
    tokenizer.chat_template = None
    raw = encode({'problem': 'w1 w2'}, tokenizer)['input_ids'].tolist()
    assert templated == raw == (
        [tokenizer.bos_token_id] + tokenizer('w1 w2', add_special_tokens=False)['input_ids'])


def test_picture_limits_reach_the_processor(tmp_path):
    """V6: one grid for a picture wherever it is encoded, and the settings change it;
    placeholders follow the grid."""
    from model import load
    model, processor = tiny_qwen_vl()
    model.save_pretrained(tmp_path)
    processor.save_pretrained(tmp_path)
    question = {'problem': '<image>w1', 'images': [picture(300, 200)]}
    tokens = []
    for limits in ({}, {'max_pixels': 56 * 56 * 4}, {'min_pixels': 448 * 448}):
        loaded = load(tmp_path, **limits)[1]
        prompt = encode(question, loaded)
        grid = prompt['image_grid_thw'][0]
        assert int((prompt['input_ids'] == 5).sum()) == int(grid.prod()) // 4
        assert len(prompt['pixel_values']) == int(grid.prod())
        tokens.append(int(grid.prod()) // 4)
    assert tokens[1] < tokens[0] < tokens[2]


def test_missing_mm_token_type_ids_is_an_error():
    """V4: without them the model would fall back to text positions and say nothing."""
    model, processor, prompts = setting('qwen_vl')
    broken = {key: value for key, value in prompts[0].items() if key != 'mm_token_type_ids'}
    with pytest.raises(TypeError, match='mm_token_type_ids'):
        Policy(model).prefill(collate([broken], 'cpu'))


def test_load_questions(tmp_path):
    with pytest.raises(FileNotFoundError, match='data/prepare.py nowhere'):
        load_questions('nowhere', 'train')
    file = tmp_path / 'mine.jsonl'
    file.write_text('{"problem": "w1", "answer": "1"}\n{"problem": "w2", "answer": "2"}\n')
    assert [row['answer'] for row in load_questions(str(file), 'train')] == ['1', '2']
    assert len(load_questions(str(file), 'test', limit=1)) == 1
    file = tmp_path / 'bad.jsonl'
    file.write_text('{"question": "w1", "answer": "1"}\n')
    with pytest.raises(ValueError, match='problem'):
        load_questions(str(file), 'train')


def test_pack_and_chunks():
    rows = [Trajectory(3, [5, 2], [0.0, 0.0], 4), Trajectory(1, [6, 7, 2], [0.0] * 3, 9),
            Trajectory(3, [2], [0.0], 4)]
    prompts, owner, ids, mask = pack(rows, {1: 'prompt 1', 3: 'prompt 3'}, 'cpu')
    assert prompts == ['prompt 3', 'prompt 1'] and owner.tolist() == [0, 1, 0]
    assert ids.tolist() == [[5, 2, 0], [6, 7, 2], [2, 0, 0]]
    assert mask.tolist() == [[True, True, False], [True, True, True], [True, False, False]]
    assert chunks('abcde', [1, 2, 3, 9, 1], 6) == [['a', 'b'], ['c'], ['d'], ['e']]
    assert chunks('abc', [1, 1, 1], 100) == [['a', 'b', 'c']] and chunks('', [], 5) == []


def test_seeds_differ():
    seeds = {seed_of(seed, step, slot) for seed in range(5) for step in range(50) for slot in range(20)}
    assert len(seeds) > 4990 and seed_of(1, 2) != seed_of(2, 1)


def test_dropout_is_off(tmp_path):
    """S7: old, new and reference log-probs come from one network, also with a checkpoint that has dropout."""
    from model import load
    model, tokenizer = tiny_llama()
    model.config.attention_dropout = 0.5
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    loaded, tokenizer = load(tmp_path)
    policy = Policy(loaded).train()
    prompts = [encode(q, tokenizer) for q in TEXTS]
    rollouts = generate(policy, tokenizer, prompts, 2, [2], range(5), 8)
    logps, _ = policy(prompts, rollouts.owner, rollouts.ids, rollouts.mask)
    assert (logps - rollouts.logps)[rollouts.mask].abs().max() < 1e-5


def test_processor_expands_each_picture_in_order():
    processor = PictureProcessor(Qwen2VLImageProcessorPil(), word_tokenizer())
    prompt = encode(QUESTIONS[1], processor)
    runs = ''.join('i' if token == 5 else '.' for token in prompt['input_ids'].tolist()).split('.')
    assert [len(run) for run in runs if run] == [8, 9]


def test_resolve():
    """The toy's names mean the level of the settings, also as a data set to test on; others stay."""
    config = {'toy_level': 2}
    assert rollout.resolve('toy_geo', config) == 'toy_geo/level2'
    assert rollout.resolve('toy', config) == str(rollout.DATA / 'toy_geo/level2/warm_start')
    assert [rollout.resolve(name, config) for name in ('geo3k', 'a/b.jsonl')] == ['geo3k', 'a/b.jsonl']
