"""data/prepare.py: every recipe gives the one schema; bad rows are named and left out."""
import io
import json
import random

import datasets
import pytest
from helpers import SHARED, needs_samples
from PIL import Image, ImageDraw

import reward
from data import prepare

def run(tmp_path, *arguments):
    prepare.main([*arguments, f"--out={tmp_path / 'out'}"])
    files = {split: str(tmp_path / "out" / f"{split}.parquet") for split in ("train", "test")}
    return {split: datasets.Dataset.from_parquet(files[split], cache_dir=tmp_path / "hf") for split in files}


@pytest.fixture(autouse=True)
def private_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


def made_up(tmp_path):
    """12 rows with pictures: row 1 lacks its picture, row 2 its answer, row 3 has a see-through picture."""
    picture = Image.new("RGB", (4, 3), "red")
    rows = [{"problem": f"<image>What is {i}?", "answer": str(i), "images": [picture]} for i in range(12)]
    rows[1]["images"] = []
    rows[2]["answer"] = "  "
    rows[3]["images"] = [Image.new("RGBA", (4, 3), (0, 0, 0, 0))]
    features = {"problem": datasets.Value("string"), "answer": datasets.Value("string"),
                "images": datasets.List(datasets.Image())}
    path = tmp_path / "mine.parquet"
    datasets.Dataset.from_list(rows, features=datasets.Features(features)).to_parquet(path)
    return path


def test_own_parquet(tmp_path, capsys):
    sets = run(tmp_path, "file", f"--source={made_up(tmp_path)}")
    assert sets["train"].features == prepare.FEATURES
    assert sets["train"]["answer"] == ["0", "3", "4", "5", "6", "7", "8", "9"]
    assert sets["test"]["answer"] == ["10", "11"]
    pictures = [picture for row in sets["train"] for picture in row["images"]]
    assert {picture.mode for picture in pictures} == {"RGB"} and pictures[0].getpixel((0, 0)) == (255, 0, 0)
    assert pictures[1].getpixel((0, 0)) == (255, 255, 255)  # see-through became white, not black
    ids = sets["train"]["id"][:] + sets["test"]["id"][:]
    assert len(set(ids)) == 10 and ids[:2] == ["file-train-0", "file-train-3"]
    output = capsys.readouterr().out
    assert "row 1: problem '<image>What is 1?' with 0 pictures" in output and "2 skipped" in output
    assert "row 2: problem '<image>What is 2?' with 1 pictures, answer ''" in output
    assert "first 90 %" in output


def test_own_jsonl(tmp_path):
    Image.new("P", (5, 5)).save(tmp_path / "one.png")
    lines = [json.dumps({"problem": f"1+{i}?", "answer": i + 1}) for i in range(10)]
    lines[0] = '{"problem": "<image>what?", "answer": 0, "images": ["one.png"], "choices": ["0", "1"]}'
    (tmp_path / "mine.jsonl").write_text("\n".join(lines))
    sets = run(tmp_path, "file", f"--source={tmp_path / 'mine.jsonl'}", "--limit=3")
    assert sets["train"]["answer"][:] == ["0", "2", "3"] and sets["test"]["answer"][:] == ["10"]
    assert sets["train"][0]["images"][0].mode == "RGB" and sets["train"][0]["choices"] == ["0", "1"]
    assert sets["train"][1]["images"] == sets["train"][1]["choices"] == sets["train"][1]["box"] == []


def test_unknown_column(tmp_path):
    (tmp_path / "mine.jsonl").write_text('{"question": "1+1?", "answer": "2"}\n' * 4)
    with pytest.raises(SystemExit, match="no column 'problem' in .*question.*recipes.toml"):
        run(tmp_path, "file", f"--source={tmp_path / 'mine.jsonl'}")


def test_messages(tmp_path, capsys):
    for arguments, message in ((["nosuch"], "geo3k"), (["file"], "--source"), (["os_atlas"], "bbox")):
        with pytest.raises(SystemExit):
            prepare.main(arguments)
        assert message in capsys.readouterr().err
    with pytest.raises(SystemExit, match="cannot read 'no/such-set'.*\n.*--source=FILE"):
        run(tmp_path, "geo3k", "--source=no/such-set")


def test_count_is_checked(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(prepare.RECIPES["gsm8k"], "source", [str(made_up(tmp_path))])
    monkeypatch.setitem(prepare.RECIPES["gsm8k"], "problem", "problem")
    run(tmp_path, "gsm8k")
    assert "7473 were published" in capsys.readouterr().out


def test_arithmetic(tmp_path):
    pytest.importorskip("reasoning_gym")
    sets = run(tmp_path, "arithmetic")
    assert {split: len(rows) for split, rows in sets.items()} == {"train": 2000, "test": 200}
    problems = sets["train"]["problem"][:] + sets["test"]["problem"][:]
    assert len(set(problems)) == 2200
    terms = [problem.removeprefix("What is ").removesuffix("?").split(" + ") for problem in problems]
    answers = sets["train"]["answer"][:] + sets["test"]["answer"][:]
    assert [int(a) + int(b) for a, b in terms] == [int(answer) for answer in answers]
    assert sum(len(a + b) == 3 for a, b in terms) == 1100 == sum(len(a + b) == 4 for a, b in terms)


@needs_samples
def test_geo3k_sample(tmp_path):
    sets = run(tmp_path, "geo3k", f"--source={SHARED / 'geometry3k_real.parquet'}")
    assert [len(rows) for rows in sets.values()] == [9, 1]
    for row in [*sets["train"], *sets["test"]]:
        assert row["problem"].startswith("<image>") and [picture.mode for picture in row["images"]] == ["RGB"]
        assert row["answer"] and row["choices"] == []
    corner = sets["train"][0]["images"][0].getpixel((0, 0))
    assert min(corner) > 200, "the background of a Geometry3K diagram is white"


@needs_samples
def test_gsm8k_sample(tmp_path):
    sets = run(tmp_path, "gsm8k", f"--source={SHARED / 'gsm8k_train.parquet'}")
    assert [len(rows) for rows in sets.values()] == [900, 100]
    assert sets["train"][0]["answer"] == "72"
    for answer in sets["train"]["answer"]:
        int(answer)  # no thousands commas, no rationale


def test_sources_without_training_rows(tmp_path):
    """A set to train on whose source has only a test split: said so, with what to do."""
    (tmp_path / "test.jsonl").write_text('{"problem": "1+1?", "answer": 2}\n' * 5)
    with pytest.raises(SystemExit, match=r"no train split but \['test'\].*--source"):
        prepare.main(["math", f"--source={tmp_path}", f"--out={tmp_path / 'out'}"])


def elements():
    """An OS-Atlas row with 12 elements; those of number 2 to 8 are not usable."""
    boxes = [[0.25, 0.1, 0.5, 1.0] for _ in range(12)]
    boxes[2:8] = [[0.5, 0.1, 0.5, 0.2], [0.6, 0.1, 0.5, 0.2], [0.1, 0.3, 0.2, 0.2], [-0.01, 0.1, 0.2, 0.3],
                  [0.1, 0.1, 0.2, 1.01], None]
    return [{"instruction": f"Button {i}" if i != 8 else "", "bbox": box, "data_type": "icon"}
            for i, box in enumerate(boxes)]


@pytest.mark.parametrize("nested", [False, True])
def test_boxes(tmp_path, capsys, nested):
    """The raw files of OS-Atlas are json beside their pictures, with elements nested or one to a row."""
    Image.new("RGB", (8, 6), "blue").save(tmp_path / "screen.png")
    rows = [{"img_filename": "screen.png", "elements": elements()},
            {"img_filename": "missing.png", "elements": elements()[:1]},
            {"img_filename": "screen.png", "elements": elements()[:1]}]
    if not nested:
        rows = [{"img_filename": row["img_filename"]} | part for row in rows for part in row["elements"]]
    (tmp_path / "screens.json").write_text(json.dumps(rows))
    sets = run(tmp_path, "os_atlas", f"--source={tmp_path / 'screens.json'}")
    assert sets["train"].features == prepare.FEATURES
    numbers = [row["problem"].split('"')[1] for row in [*sets["train"], *sets["test"]]]
    assert numbers == [f"Button {i}" for i in (0, 1, 9, 10, 11, 0)]
    for row in sets["train"]:
        assert row["problem"].startswith("<image>Where") and row["images"][0].size == (8, 6)
        assert row["answer"] == "[250, 100, 500, 1000]" and row["box"] == [0.25, 0.1, 0.5, 1.0]
    output = capsys.readouterr().out
    for i, element in list(enumerate(elements()))[2:7]:
        reason = f"row {i}: 'Button {i}' at {element['bbox']}: needs text, left < right"
        assert f"skipped os_atlas-train {reason}" in output
    assert "row 7: not enough values to unpack" in output and "row 8: '' at" in output
    assert "No such file" in output and "missing.png" in output and output.count("skipped os_atlas") == 8


@needs_samples
@pytest.mark.parametrize("form, last", [("grounding", 3), ("elements", 11)])
def test_os_atlas_sample(tmp_path, form, last):
    """Both forms; an answer written in thousandths earns what the exact ratios would."""
    sets = run(tmp_path, "os_atlas", f"--source={SHARED / f'osatlas_{form}_handlabelled.parquet'}")
    asked = [*sets["train"], *sets["test"]]
    assert len(asked) == 25 and len(sets["test"]) == last  # a tenth of the rows, or one picture of two
    assert "switch language of current page" in asked[0]["problem"]
    assert asked[0]["answer"] == "[576, 12, 592, 42]"
    assert asked[0]["box"] == [0.575781, 0.0125, 0.592187, 0.041667]
    for row in asked:
        assert row["problem"].count("<image>") == 1 and row["images"][0].size == (1280, 720)
        parts = reward.grounding_reward(f"<thinking> </thinking> \\boxed{{{row['answer']}}}", row["box"])
        assert parts["format"] == 0.5 and parts["iou"] > 0.9 and parts["center"] == 1


def alike(tmp_path, name, sample):
    """The test rows that recipe `name` makes of a sample, and the raw rows; no train.parquet is written."""
    rows = datasets.Dataset.from_parquet(str(SHARED / sample), cache_dir=tmp_path / "raw")
    prepare.main([name, f"--source={SHARED / sample}", f"--out={tmp_path / 'out'}"])
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["test.parquet"]
    made = datasets.Dataset.from_parquet(str(tmp_path / "out" / "test.parquet"), cache_dir=tmp_path / "hf")
    assert made.features == prepare.FEATURES and len(made) == len(rows) == len(set(made["id"]))
    return list(made), list(rows)


@needs_samples
@pytest.mark.parametrize("form", ["geoqa_8k_r1v", "geoqa_r1v"])
def test_geoqa_sample(tmp_path, form):
    sets = run(tmp_path, "geoqa8k", f"--source={SHARED / form}.parquet")
    assert [len(rows) for rows in sets.values()] == [36, 4]
    rows = [*sets["train"], *sets["test"]]
    assert all(row["problem"].startswith("<image>") for row in rows)
    assert all(row["problem"].count("<image>") == len(row["images"]) == 1 for row in rows)
    answers = [row["answer"] for row in rows]
    assert answers[:2] == ["140°", "50°"] and "9米" in answers and r"\frac{1}{2}cm²" in answers
    assert not [answer for answer in answers if "answer" in answer or answer != answer.strip()]
    assert min(rows[5]["images"][0].getpixel((0, 0))) > 200  # 99 % see-through: black in the paper


@needs_samples
def test_math_sample(tmp_path):
    """The cut is random but the same every time, and train and test share no question."""
    first = run(tmp_path, "math", f"--source={SHARED / 'math12k_layout.parquet'}")
    problems = {split: rows["problem"][:] for split, rows in first.items()}
    assert [len(rows) for rows in first.values()] == [270, 30]
    raw = datasets.Dataset.from_parquet(str(SHARED / "math12k_layout.parquet"), cache_dir=tmp_path / "raw")
    truth = {row["problem"].strip(): row["answer"] for row in raw}
    assert problems["test"] != list(truth)[270:]
    assert set(problems["train"]) | set(problems["test"]) == set(truth)
    assert all(truth[row["problem"]] == row["answer"] for rows in first.values() for row in rows)
    again = run(tmp_path, "math", f"--source={SHARED / 'math12k_layout.parquet'}")
    assert problems == {split: rows["problem"][:] for split, rows in again.items()}


def test_math_cut(monkeypatch):
    """From the Hub, train and test come as one: 12,500 rows give the 11,250 and 1,250 of the paper."""
    asked = []

    def hub(*source, split):
        asked.append((source, split))
        rows = [{"problem": f"{i}?", "answer": str(i)} for i in range(12_500)]
        return datasets.DatasetDict(train=datasets.Dataset.from_list(rows))

    monkeypatch.setattr(prepare, "load_dataset", hub)
    sets = prepare.load(prepare.RECIPES["math"], None)
    assert asked == [(("hiyouga/math12k",), {"train": "train+test"})]
    assert {split: len(rows) for split, rows in sets.items()} == prepare.RECIPES["math"]["rows"]


def test_splits(tmp_path_factory):
    """load_dataset takes what a recipe says of splits; a set to evaluate on may call its only one train."""
    tmp_path = tmp_path_factory.mktemp("hub")  # the name of a folder can make all of it a test split
    for split in ("train", "test"):
        (tmp_path / f"{split}.jsonl").write_text("".join(
            json.dumps({"problem": f"{split} {i}?", "Answer": f"0{i}"}) + "\n" for i in range(90)))
    recipe = prepare.RECIPES["aime2023"] | {"source": [str(tmp_path)]}
    sets = prepare.load(recipe, None)
    assert list(sets) == ["test"] and sets["test"]["problem"][:] == [f"train {i}?" for i in range(30, 60)]
    recipe = prepare.RECIPES["math"] | {"source": [str(tmp_path)]}
    sets = prepare.load(recipe, None)
    assert {split: len(rows) for split, rows in sets.items()} == {"train": 162, "test": 18}
    (tmp_path / "test.jsonl").unlink()
    sets = prepare.load(prepare.RECIPES["aime2024"], str(tmp_path))
    assert {split: len(rows) for split, rows in sets.items()} == {"test": 90}


@needs_samples
@pytest.mark.parametrize("year", [2023, 2024, 2025, 2026])
def test_aime_sample(tmp_path, year):
    made, rows = alike(tmp_path, f"aime{year}", f"aime_{year}.parquet")
    assert len(made) == 30
    for row, raw in zip(made, rows):
        assert row["problem"] == raw["problem"].strip() and row["answer"] == str(int(raw["answer"]))
        assert row["images"] == []
    if year == 2024:
        copy = {"ID": "2024-I-1", "Problem": "1+1?", "Answer": 2}
        copy = prepare.convert(prepare.RECIPES["aime2024"], copy, tmp_path)
        assert (copy["problem"], copy["answer"]) == ("1+1?", "2")


@needs_samples
def test_dapo_math_sample(tmp_path):
    sets = run(tmp_path, "dapo_math", f"--source={SHARED / 'dapo_math.parquet'}")
    assert [len(rows) for rows in sets.values()] == [270, 30]
    assert sets["train"][0]["problem"].startswith("In triangle $ABC$, $\\sin \\angle A")
    assert sets["train"][0]["problem"].endswith("find $a + b + c$.") and sets["train"][0]["answer"] == "34"
    for row in [*sets["train"], *sets["test"]]:
        int(row["answer"])
        assert "Please solve" not in row["problem"] and "step by step" not in row["problem"]
        assert "\\boxed{1}" not in row["problem"] and not row["problem"].endswith("..")


@needs_samples
def test_mathverse_sample(tmp_path):
    made, rows = alike(tmp_path, "mathverse", "mathverse_testmini.parquet")
    assert sum(raw["question"] == "" for raw in rows) == 5
    for row, raw in zip(made, rows):
        assert row["problem"].count("<image>") == 1 and row["problem"].startswith("<image>")
        assert raw["question"].strip() in row["problem"] and len(row["problem"]) > 50
        assert row["id"] == f"mathverse-test-{raw['sample_index']}" and row["part"] == raw["problem_version"]
        assert (len(row["choices"]) >= 2) == (raw["question_type"] == "multi-choice")
        right = row["choices"]["ABCD".index(row["answer"])] if row["answer"] in "ABCD" else row["answer"]
        assert reward.grade(right, row) is True and reward.grade(row["answer"], row) is True
    assert {row["answer"] for row in made} == {"14", "(-2,1]", "B", "17", "C, D"}
    assert {row["part"]: 0 for row in made}.keys() == {
        "Text Dominant", "Text Lite", "Vision Intensive", "Vision Dominant", "Vision Only"}


@needs_samples
def test_mathvision_sample(tmp_path):
    made, rows = alike(tmp_path, "mathvision", "mathvision_testmini.parquet")
    made = {raw["id"]: row for row, raw in zip(made, rows)}
    for raw in rows:
        row = made[raw["id"]]
        assert row["problem"].startswith("<image>") and row["problem"].count("<image") == 1
        assert ("letter" in row["problem"]) == bool(raw["options"]) and row["choices"] == raw["options"]
        assert row["answer"] == raw["answer"]
    assert "\n(A) red\n(B) blue\n(C) green\n(D) Yellow\n(E) This" in made["39"]["problem"]
    assert "When the ant walks from home along" in made["33"]["problem"]
    assert "\n(A)\n(B)\n(C)\n" in made["2673"]["problem"]  # its options are parts of the picture
    assert made["39"]["id"] == "mathvision-test-39" and made["39"]["decimals"] == 2
    assert made["39"]["part"] == next(raw["subject"] for raw in rows if raw["id"] == "39")
    text = made["39"]["choices"]["ABCDE".index(made["39"]["answer"])]
    assert reward.grade(text, made["39"]) is True  # the official rule takes letter or text


def test_mathverse_answer_that_is_the_value_of_an_option():
    """SCHEMAS.md, problem 339 and 429: marked as multiple choice, but the answer is no letter."""
    row = {"sample_index": "1", "problem_version": "Text Lite", "query_cot": "What?",
           "question": "What?\nChoices:\nA:090^\\circ T\nB:45^\\circ T", "image": Image.new("RGB", (30, 30)),
           "answer": "090^\\circ T"}
    made = prepare.convert(prepare.RECIPES["mathverse"], row, None)
    assert made["choices"] == ["090^\\circ T", "45^\\circ T"]
    assert [reward.grade(answer, made) is True for answer in ("A", "090^\\circ T", "B", "45")] == [1, 1, 0, 0]
    for gap in ("What?\nB:1\nC:2", "What?\nA:1\nC:2", "What?"):  # letters would not be those of the text
        assert prepare.convert(prepare.RECIPES["mathverse"], row | {"question": gap}, None)["choices"] == []


@needs_samples
@pytest.mark.parametrize("sample", ["mathvista_testmini", "mathvista_testmini_schema"])
def test_mathvista_sample(tmp_path, sample):
    """Choices become letters, their text counts as well; precision and whole numbers as published."""
    made, rows = alike(tmp_path, "mathvista", f"{sample}.parquet")
    for row, raw in zip(made, rows):
        assert row["id"] == f"mathvista-test-{raw['pid']}" and row["part"] == raw["metadata"]["task"]
        assert row["problem"] == "<image>" + raw["query"].strip() and len(row["images"]) == 1
        assert row["choices"] == [choice.strip() for choice in raw["choices"] or []]
        if raw["choices"]:
            assert raw["choices"]["ABCDEFGH".index(row["answer"])] == raw["answer"]
            assert row["decimals"] is None
        else:
            assert row["answer"] == raw["answer"].strip()
            assert row["decimals"] == (0 if raw["answer_type"] == "integer" else raw["precision"])
        assert reward.grade(row["answer"], row) is True
        if raw["answer_type"] == "float":  # calculate_score.py: round(float(x), precision), then equality
            for shift in (0.2, -0.2, 0.7, -0.7):
                guess = float(raw["answer"]) + shift * 10 ** -raw["precision"]
                right = str(round(guess, int(raw["precision"]))) == raw["answer"]
                assert (reward.grade(f"{guess:.6f}", row) is True) == right, (guess, raw["answer"])
        if raw["answer_type"] == "integer" and not raw["choices"]:
            for guess in (f"{raw['answer']}.7", f"{int(raw['answer']) + 1}"):
                right = str(int(float(guess))) == raw["answer"]
                assert (reward.grade(guess, row) is True) == right


@needs_samples
def test_wemath_sample(tmp_path):
    """Names with blanks, a picture in image_path, ID repeated over the steps; options in one string."""
    made, rows = alike(tmp_path, "wemath", "wemath_testmini.parquet")
    for row, raw in zip(made, rows):
        assert row["id"] == f"wemath-test-{raw['ID']} {raw['key']}" and row["part"] == raw["key"]
        assert raw["option"] in row["problem"] and raw["question"].strip() in row["problem"]
        assert "letter" in row["problem"] and row["answer"] == raw["answer"] and row["choices"] == []
        named = f"{raw['answer']}. whatever it says"
        assert reward.grade(named, row) is reward.grade(raw["answer"], row) is True
        assert reward.grade("C" if raw["answer"] != "C" else "D", row) is False


def test_math_clean_cut(monkeypatch):
    """All of MATH-500 (the source's test split) is in test; the rest is cut by the seed."""
    published = {split: datasets.Dataset.from_list([{"problem": f"{split} {i}?", "answer": "1"}
                                                    for i in range(count)])
                 for split, count in (("train", 12_000), ("test", 500))}
    monkeypatch.setattr(prepare, "load_dataset", lambda *source, split: datasets.DatasetDict(published))
    sets = prepare.load(prepare.RECIPES["math_clean"], None)
    assert {split: len(rows) for split, rows in sets.items()} == {"train": 11_250, "test": 1_250}
    train, test = (sets[split]["problem"][:] for split in ("train", "test"))
    assert not set(train) & set(test) and set(published["test"]["problem"]) <= set(test)
    assert all(problem.startswith("train") for problem in train)
    assert train != published["train"]["problem"][:11_250]
    assert train == prepare.load(prepare.RECIPES["math_clean"], None)["train"]["problem"][:]


def test_warns_of_copies(tmp_path, capsys):
    """A benchmark's rows that stand in a training set: by text without pictures, else by the picture, also
    one that was scaled and compressed; other pictures and texts that differ are none."""
    draw, pictures = random.Random(0), []
    for _ in range(6):
        picture = Image.new("RGB", (120, 90), "white")
        for _ in range(4):
            corners = [(draw.randrange(120), draw.randrange(90)) for _ in range(3)]
            ImageDraw.Draw(picture).line(corners, "black", 2)
        pictures.append(picture)

    def write(name, rows):
        rows = [{"problem": text, "answer": "1", "images": [image] if image else []} for text, image in rows]
        features = datasets.Features(problem=datasets.Value("string"), answer=datasets.Value("string"),
                                     images=datasets.List(datasets.Image()))
        datasets.Dataset.from_list(rows, features=features).to_parquet(tmp_path / f"{name}.parquet")
        prepare.main(["file", f"--source={tmp_path / name}.parquet", f"--out={tmp_path / 'data' / name}"])
        return capsys.readouterr().out
    small = io.BytesIO()
    pictures[1].resize((84, 63)).save(small, "JPEG", quality=75)
    first = [("<image>What is x?", picture) for picture in pictures[:5]] + [
        (f"How many are {i}?", None) for i in range(15)]
    assert "WARNING" not in write("first", first)
    again = [("other", None)] * 9 + [("<image>Find y.", Image.open(small))]
    shown = write("second", again)
    assert "WARNING: 1 of 1 questions" in shown and "file-test-0 is file-train-1" in shown
    assert "WARNING" not in write("third", [(f"What are {i}?", None) for i in range(10)])
    assert "WARNING" not in write("digits", [(f"{i} + 12?" if i < 9 else "91 + 2?", None) for i in range(10)])
    shown = write("fourth", [(f"Which {i}?", None) for i in range(9)] + [("how many ARE 3 ?", None)])
    assert "WARNING: 1 of 1 questions" in shown and "first/train.parquet" in shown
    last = [(f"Where {i}?", None) for i in range(9)] + [("<image>x?", pictures[5])]
    assert "WARNING" not in write("fifth", last)
    (tmp_path / "data" / "own").mkdir()  # a set that was put there by hand
    datasets.Dataset.from_list([{"problem": "1+1?", "answer": "2"}]).to_parquet(
        tmp_path / "data" / "own" / "train.parquet")
    assert "WARNING" not in write("sixth", [(f"Who {i}?", None) for i in range(10)])


def test_marks_are_put_where_they_lack(tmp_path):
    """Rows with pictures and without <image> get the marks in front; wrong numbers of marks stay errors."""
    picture = Image.new("RGB", (30, 30))
    row = {"problem": "What is <image1> and <image2>?", "answer": "1", "images": [picture, picture]}
    assert prepare.convert({}, row, tmp_path)["problem"] == "<image><image>What is and?"
    with pytest.raises(ValueError, match="with 2 pictures"):
        prepare.convert({}, row | {"problem": "<image>What?"}, tmp_path)


def test_many_rows_are_written_in_pieces(tmp_path):
    (tmp_path / "mine.jsonl").write_text("".join(
        json.dumps({"problem": f"1+{i}?", "answer": str(i + 1) if i % 7 else " "}) + "\n"
        for i in range(700)))
    sets = run(tmp_path, "file", f"--source={tmp_path / 'mine.jsonl'}")
    answers = sets["train"]["answer"][:] + sets["test"]["answer"][:]
    assert answers == [str(i + 1) for i in range(700) if i % 7]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["test.parquet", "train.parquet"]


@pytest.mark.parametrize("published, answer", [  # as SCHEMAS.md quotes them
    (r"$4 \pi$", r"4 \pi"), (r"$\boxed{\frac{16}{7}}$", r"\frac{16}{7}"),
    ("\x0crac{36}{13}", r"\frac{36}{13}"),
    (r"$\frac{90}{23}^{\circ}$", r"\frac{90}{23}^{\circ}"), ("11 ", "11"), ("(C)", "C"), ("C\nD", "C, D"),
    ("118掳T", "118°T"), ("$$r=7.00$$", "r=7.00"), ("5cm^2^", "5cm^2"),
    ("(3,-4)", "(3,-4)"), ("False", "False"),
    (r"Circumference $=50.27 \mathrm{~cm}$", r"50.27 \mathrm{~cm}"), ("<answer> 145° </answer>", "145°"),
    (r"\$5", r"\$5"), ("27cm^{2}", "27cm^{2}"), ("16π平方米", "16π平方米"), ("(√{3}+1)小时", "(√{3}+1)小时")])
def test_repairs(published, answer):
    row = {"problem": "What?", "answer": published}
    assert prepare.convert({"repair": "geoqa8k"}, row, None)["answer"] == answer
