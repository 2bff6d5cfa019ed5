"""data/prepare.py: every recipe gives the one schema; bad rows are named and left out."""
import json
import os

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"  # nothing here may reach for the network
import datasets  # noqa: E402
from helpers import SHARED, needs_samples  # noqa: E402
from PIL import Image  # noqa: E402

import reward  # noqa: E402
from data import prepare  # noqa: E402


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
    with pytest.raises(SystemExit, match="no column 'problem' in .*question.*RECIPES"):
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
    monkeypatch.setitem(prepare.RECIPES["gsm8k"], "row", dict)
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


def elements():
    """An OS-Atlas row with 12 elements; those of number 2 to 8 are not usable."""
    boxes = [[0.25, 0.1, 0.5, 1.0] for _ in range(12)]
    boxes[2:8] = [[0.5, 0.1, 0.5, 0.2], [0.6, 0.1, 0.5, 0.2], [0.1, 0.3, 0.2, 0.2], [-0.01, 0.1, 0.2, 0.3],
                  [0.1, 0.1, 0.2, 1.01], [0.1, 0.2, 0.3]]
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
    copy = prepare.RECIPES[f"aime{year}"]["row"]({"ID": "2024-I-1", "Problem": "1+1?", "Answer": 2})
    assert copy == {"problem": "1+1?", "answer": 2}


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
    assert {row["answer"] for row in made} == {"14", "(-2,1]", "B", "17", "C, D"}


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


@pytest.mark.parametrize("published, answer", [  # as SCHEMAS.md quotes them
    (r"$4 \pi$", r"4 \pi"), (r"$\boxed{\frac{16}{7}}$", r"\frac{16}{7}"),
    ("\x0crac{36}{13}", r"\frac{36}{13}"),
    (r"$\frac{90}{23}^{\circ}$", r"\frac{90}{23}^{\circ}"), ("11 ", "11"), ("(C)", "C"), ("C\nD", "C, D"),
    ("118掳T", "118°T"), ("$$r=7.00$$", "r=7.00"), ("5cm^2^", "5cm^2"),
    ("(3,-4)", "(3,-4)"), ("False", "False"),
    (r"Circumference $=50.27 \mathrm{~cm}$", r"50.27 \mathrm{~cm}"), ("<answer> 145° </answer>", "145°"),
    (r"\$5", r"\$5"), ("27cm^{2}", "27cm^{2}"), ("16π平方米", "16π平方米"), ("(√{3}+1)小时", "(√{3}+1)小时")])
def test_repairs(published, answer):
    assert prepare.about("picture", "What?", published)["answer"].strip() == answer
    assert not prepare.about("picture", "What?", None)["answer"]
