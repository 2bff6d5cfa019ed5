"""data/prepare.py: every recipe gives the one schema; bad rows are named and left out."""
import json
import os
from pathlib import Path

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"  # nothing here may reach for the network
import datasets  # noqa: E402
from PIL import Image  # noqa: E402

from data import prepare  # noqa: E402

SAMPLES = Path(__file__).parent.parent.parent / "shared" / "data"


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
    assert "row 1: 1 x <image>, 0 pictures" in output and "row 2: empty" in output and "2 skipped" in output
    assert "first 90 %" in output


def test_own_jsonl(tmp_path):
    Image.new("P", (5, 5)).save(tmp_path / "one.png")
    lines = [json.dumps({"problem": f"1+{i}?", "answer": i + 1}) for i in range(10)]
    lines[0] = '{"problem": "<image>what?", "answer": 0, "images": ["one.png"], "choices": ["0", "1"]}'
    (tmp_path / "mine.jsonl").write_text("\n".join(lines))
    sets = run(tmp_path, "file", f"--source={tmp_path / 'mine.jsonl'}", "--limit=3")
    assert sets["train"]["answer"][:] == ["0", "2", "3"] and sets["test"]["answer"][:] == ["10"]
    assert sets["train"][0]["images"][0].mode == "RGB" and sets["train"][0]["choices"] == ["0", "1"]
    assert sets["train"][1]["images"] == [] and sets["train"][1]["choices"] == []


def test_unknown_column(tmp_path):
    (tmp_path / "mine.jsonl").write_text('{"question": "1+1?", "answer": "2"}\n' * 4)
    with pytest.raises(SystemExit, match="no column 'problem' among .*question.*RECIPES"):
        run(tmp_path, "file", f"--source={tmp_path / 'mine.jsonl'}")


def test_messages(tmp_path, capsys):
    for arguments, message in ((["nosuch"], "geo3k"), (["file"], "--source")):
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


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="no folder of samples beside the repository")
def test_geo3k_sample(tmp_path):
    sets = run(tmp_path, "geo3k", f"--source={SAMPLES / 'geometry3k_real.parquet'}")
    assert [len(rows) for rows in sets.values()] == [9, 1]
    for row in [*sets["train"], *sets["test"]]:
        assert row["problem"].startswith("<image>") and [picture.mode for picture in row["images"]] == ["RGB"]
        assert row["answer"] and row["choices"] == []
    corner = sets["train"][0]["images"][0].getpixel((0, 0))
    assert min(corner) > 200, "the background of a Geometry3K diagram is white"


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="no folder of samples beside the repository")
def test_gsm8k_sample(tmp_path):
    sets = run(tmp_path, "gsm8k", f"--source={SAMPLES / 'gsm8k_train.parquet'}")
    assert [len(rows) for rows in sets.values()] == [900, 100]
    assert sets["train"][0]["answer"] == "72"
    for answer in sets["train"]["answer"]:
        int(answer)  # no thousands commas, no rationale
