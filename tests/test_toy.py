"""data/toy.py: what the toy's numbers rest on. The full warm start is not run here (effort=0.02)."""
import hashlib
import os
import random
import re
from collections import Counter, defaultdict

import pytest

os.environ['HF_HUB_OFFLINE'] = '1'
os.environ['HF_DATASETS_DISABLE_PROGRESS_BARS'] = '1'
import torch  # noqa: E402
from datasets import Dataset  # noqa: E402
from PIL import ImageChops  # noqa: E402
from transformers import AutoImageProcessor, AutoTokenizer, Qwen2_5_VLForConditionalGeneration  # noqa: E402

import data.toy as toy  # noqa: E402
from reward import grounding_reward  # noqa: E402

PROMPT = ('<|im_start|> user <|vision_start|>{}<|vision_end|> What is the {} of the shape? <|im_end|> '
          '<|im_start|> assistant')
QUESTION = 'What is the {} of the shape?'
FORMAT = re.compile(r'<thinking>.*</thinking>.*\\boxed\{.*\}.*', re.DOTALL)


def pixels(picture):
    return hashlib.sha256(picture.convert('RGB').tobytes()).hexdigest()


def boxed(text):
    return re.findall(r'\\boxed\{ (.*) \}', text)[-1]


def worked_out(scene, kind):
    """The right answer as a number, by other means than the recipes'."""
    w, h, triangle = scene['w'], scene['h'], scene['shape'] == 'triangle'
    if kind == 'box':  # around all points that are not white
        dark = ImageChops.invert(scene['picture'].convert('L')).getbbox()
        return [edge / 56 for edge in dark]
    diagonal = (w ** 2 + h ** 2) ** 0.5
    return {'area': w * h / (2 if triangle else 1), 'diagonal': diagonal,
            'perimeter': w + h + (diagonal if triangle else w + h)}[kind]


def value(latex):
    """Of a number; of a box, its four."""
    if len(latex.split()) == 4 and latex.replace(' ', '').isdigit():
        return [int(number) / 1000 for number in latex.split()]
    python = re.sub(r'\\frac\{ (\d+) \}\{ 2 \}', r'\1 / 2', latex)
    python = re.sub(r'(\d+) \\sqrt', r'\1 * \\sqrt', python)
    return eval(re.sub(r'\\sqrt\{ (\d+) \}', r'\1 ** 0.5', python))


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp('toy')
    toy.prepare(folder, level=1, seed=0, effort=0.02)
    return folder / 'level1'


def test_rows_on_disk(folder, tmp_path):
    assert [path.name for path in folder.parent.iterdir()] == ['level1'], 'nothing half-finished is left'
    seen = {}
    for split, count in toy.TOY['rows'].items():
        rows = Dataset.from_parquet(str(folder / f'{split}.parquet'), cache_dir=str(tmp_path))
        assert rows.num_rows == count and len(set(rows['id'])) == count
        assert set(rows.column_names) == {'id', 'problem', 'images', 'answer', 'choices', 'box'}
        for row in rows:
            assert row['problem'].count('<image>') == len(row['images']) == 1 and row['choices'] == []
        seen[split] = {pixels(row['images'][0]) for row in rows}
    assert not seen['test'] & seen['train'] and not seen['ood'] & (seen['train'] | seen['test'])


@pytest.mark.parametrize('level', toy.LEVELS)
def test_no_picture_of_test_is_trained_on(level):
    """Neither in train nor in the warm start; and the pairs of sides of ood occur nowhere else."""
    asked = {split: toy.sample_questions(level, split, count, random.Random(split))
             for split, count in [('train', 1500), ('test', 200), ('ood', 100)]}
    seen = {split: {pixels(scene['picture']) for scene, _ in rows} for split, rows in asked.items()}
    assert not seen['test'] & seen['train'] and not seen['ood'] & (seen['train'] | seen['test'])
    sides = {split: {(scene['w'], scene['h']) for scene, _ in rows} for split, rows in asked.items()}
    assert not sides['ood'] & (sides['train'] | sides['test'])
    assert {(h, w) for w, h in sides['ood']} <= sides['train'], 'the sums of ood are known, not its pictures'


@pytest.mark.parametrize('level', toy.LEVELS)
@pytest.mark.parametrize('seed', [0, 1])
def test_the_text_alone_does_not_answer(level, seed):
    for split, count in toy.TOY['rows'].items():
        answers = defaultdict(Counter)
        for scene, kind in toy.sample_questions(level, split, count, random.Random(seed)):
            answers[kind][toy.demonstration(scene, kind, 0, random)[1]] += 1
        for kind, counts in answers.items():
            assert max(counts.values()) < 0.25 * sum(counts.values()), (split, kind, counts.most_common(1))


@pytest.mark.parametrize('level', toy.LEVELS)
def test_worked_answers(level):
    """All parse and are made of known words; right recipes give the right answer, in three ways or more."""
    rng, words = random.Random(0), toy.make_model()[1]
    ways, lucky = defaultdict(set), 0
    for scene, kind in toy.sample_questions(level, 'train', 300, rng):
        for sloppy in (0, 1):
            text, answer = toy.demonstration(scene, kind, sloppy, rng)
            ids = words(text)['input_ids']
            decoded = words.decode(ids, skip_special_tokens=True)
            assert words.unk_token_id not in ids and ids[-1] == words.eos_token_id and len(ids) <= 64
            assert text == decoded + ' <|im_end|>' and boxed(decoded) == answer
            assert FORMAT.fullmatch(re.sub(r'\s*([<>/])\s*', r'\1', decoded))
            if sloppy == 0:
                assert value(answer) == pytest.approx(worked_out(scene, kind))
                ways[kind, scene['shape']].add(re.sub(r'\d+', '0', decoded))
            else:
                lucky += value(answer) == pytest.approx(worked_out(scene, kind))
    assert len(ways) == (6 if level == 2 else 2) and min(map(len, ways.values())) >= 3
    assert lucky < 0.1 * 300, 'wrong recipes are wrong, but for coincidences like 2 + 2 = 2 * 2'


def test_right_boxes_get_all_points():
    """Level 3: right recipes earn format, IoU 1 and center-in; wrong ones a part, by chance rarely all."""
    rng, earned = random.Random(0), {0: [], 1: []}
    for scene, kind in toy.sample_questions(3, 'train', 100, rng):
        for sloppy, rewards in earned.items():
            text = toy.demonstration(scene, kind, sloppy, rng)[0].removesuffix(' <|im_end|>')
            rewards.append(sum(grounding_reward(text, scene['box']).values()))
    assert earned[0] == pytest.approx([2.5] * 100)
    assert min(earned[1]) > 0.5 and sum(reward > 2.4 for reward in earned[1]) < 10


def test_same_seed_same_toy(tmp_path, folder):
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    toy.prepare(tmp_path, level=1, seed=0, effort=0.02)
    assert torch.equal(torch.rand(1), expected), "a caller's random numbers were used up"
    toy.prepare(tmp_path / 'other', level=1, seed=1, effort=0.02)
    weights = 'warm_start/model.safetensors'
    rows = [Dataset.from_parquet(str(path / 'train.parquet'), cache_dir=str(tmp_path / str(i)))
            for i, path in enumerate([folder, tmp_path / 'level1', tmp_path / 'other/level1'])]
    assert rows[0]['answer'] == rows[1]['answer'] != rows[2]['answer']
    assert [pixels(row[0]) for row in rows[0]['images']] == [pixels(row[0]) for row in rows[1]['images']]
    assert (folder / weights).read_bytes() == (tmp_path / 'level1' / weights).read_bytes()


def test_model_tokenizer_and_processor_agree(folder):
    model = Qwen2_5_VLForConditionalGeneration.from_pretrained(folder / 'warm_start')
    tokenizer = AutoTokenizer.from_pretrained(folder / 'warm_start')
    processor = AutoImageProcessor.from_pretrained(folder / 'warm_start', backend='pil')
    config = model.config
    for name, key in [('image_pad', 'image'), ('video_pad', 'video'), ('vision_start', 'vision_start'),
                      ('vision_end', 'vision_end')]:
        assert getattr(config, f'{key}_token_id') == tokenizer.convert_tokens_to_ids(f'<|{name}|>')
        assert f'<|{name}|>' in tokenizer.all_special_tokens
    assert tokenizer.eos_token == '<|im_end|>' and tokenizer.pad_token == '<|endoftext|>'
    assert model.generation_config.eos_token_id == config.text_config.eos_token_id == tokenizer.eos_token_id
    assert model.generation_config.pad_token_id == config.text_config.pad_token_id == tokenizer.pad_token_id
    assert len(tokenizer) == config.text_config.vocab_size == model.lm_head.out_features
    assert model.lm_head.weight is model.get_input_embeddings().weight

    scene, kind = toy.sample_questions(1, 'train', 1, random.Random(0))[0]
    inputs = processor([scene['picture']], return_tensors='pt')
    images = int(inputs['image_grid_thw'].prod()) // 4
    assert images == 4 and inputs['pixel_values'].shape == (16, 3 * 2 * 14 * 14)
    content = [{'type': 'image'}, {'type': 'text', 'text': QUESTION.format(kind)}]
    text = tokenizer.apply_chat_template(
        [{'role': 'user', 'content': content}], tokenize=False, add_generation_prompt=True)
    ids = tokenizer(text.replace('<|image_pad|>', '<|image_pad|>' * images), return_tensors='pt')['input_ids']
    words = PROMPT.format('<|image_pad|>' * images, kind).replace('><', '> <').split()
    assert tokenizer.convert_ids_to_tokens(ids[0]) == words
    out = model.generate(
        input_ids=ids, mm_token_type_ids=(ids == config.image_token_id).int(), max_new_tokens=3, **inputs)
    assert out.shape[0] == 1 and ids.shape[1] < out.shape[1] <= ids.shape[1] + 3


def test_chat_template():
    """System messages, earlier turns, content as a string or as parts."""
    tokenizer = toy.make_model()[1]
    parts = [{'type': 'text', 'text': 'What'}, {'type': 'image'}]
    chat = [{'role': 'system', 'content': 'is'}, {'role': 'user', 'content': parts},
            {'role': 'assistant', 'content': '3'}]
    text = tokenizer.apply_chat_template(chat, tokenize=False)
    assert text == ('<|im_start|>system\nis<|im_end|>\n'
                    '<|im_start|>user\nWhat<|vision_start|><|image_pad|><|vision_end|><|im_end|>\n'
                    '<|im_start|>assistant\n3<|im_end|>\n')
    assert tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True) == (
        text + '<|im_start|>assistant\n')
