"""
Public data sets -> data/NAME/{train,test}.parquet, in the one schema that train.py and eval.py read.

In:  a data set of the table RECIPES, from the Hub or --source: a Hub id, folder, parquet or json(l) file.
Out: id str, problem str (<image> where a picture goes), images list, answer str, choices list of str.
Run: python data/prepare.py geo3k
     python data/prepare.py gsm8k --source=downloads/gsm8k_train.parquet --limit=100 --out=data/small
     python data/prepare.py arithmetic                # generated; needs pip install reasoning-gym
     python data/prepare.py file --source=mine.jsonl  # your rows: problem, answer, perhaps images, choices

A source without a test split has its last tenth cut off as one. Bad rows are named by index and left out.
Departure: see-through pictures are put on white; the paper's code drops alpha, which turns some black.
"""
import argparse
import io
import itertools
from pathlib import Path

import datasets
from PIL import Image
from tqdm import tqdm

STRING = datasets.Value("string")
FEATURES = datasets.Features({"id": STRING, "problem": STRING, "images": datasets.List(datasets.Image()),
                              "answer": STRING, "choices": datasets.List(STRING)})


def arithmetic():
    """2,200 different sums of two numbers of two digits; in every other one a number has one digit."""
    try:
        import reasoning_gym
    except ImportError as error:
        raise SystemExit("arithmetic is made by reasoning-gym: run `pip install reasoning-gym`") from error
    one_digit, two_digits = {}, {}  # problem -> answer; dictionaries, as the generator repeats itself
    for row in reasoning_gym.create_dataset(
            "basic_arithmetic", size=30_000, seed=0, min_terms=2, max_terms=2, min_digits=2, max_digits=2,
            operators=["+"], allow_parentheses=False, allow_negation=False):
        a, b = row["metadata"]["expression"].split(" + ")
        if 3 <= len(a + b) <= 4 and not {"0", "100"} & {a, b}:
            (one_digit if len(a + b) == 3 else two_digits)[f"What is {a} + {b}?"] = row["answer"]
    pairs = zip(one_digit.items(), two_digits.items())
    rows = [{"problem": problem, "answer": answer} for pair in pairs for problem, answer in pair]
    return {"train": rows[:2000], "test": rows[2000:2200]}


# source: Hub id, configuration. row: source row -> dict with problem, answer, perhaps images and choices.
# rows: the published counts. The last line of a GSM8K solution is "#### 1,234".
RECIPES = {
    "geo3k": {"source": ["hiyouga/geometry3k"], "rows": {"train": 2101, "test": 601},
              "row": lambda row: {key: row[key] for key in ("problem", "images", "answer")}},
    "gsm8k": {"source": ["openai/gsm8k", "main"], "rows": {"train": 7473, "test": 1319},
              "row": lambda row: {"problem": row["question"],
                                  "answer": row["answer"].rpartition("####")[2].replace(",", "")}},
    "arithmetic": {"generate": arithmetic, "rows": {"train": 2000, "test": 200}, "row": dict},
    "file": {"row": dict},
}


def load(source):
    """[path or Hub id, configuration] -> {'train': rows, 'test': rows}."""
    try:
        if Path(source[0]).is_file():
            kind = "parquet" if source[0].endswith(".parquet") else "json"
            sets = datasets.load_dataset(kind, data_files=source[0])
        else:
            sets = datasets.load_dataset(*source)
    except (ConnectionError, FileNotFoundError) as error:
        raise SystemExit(f"cannot read {source[0]!r}: {error}\nTo use a copy, pass --source=FILE") from error
    if "test" not in sets:
        sets = sets["train"].train_test_split(test_size=0.1, shuffle=False)
        print(f"{source[0]} has no test split: its first 90 % are train, its last 10 % test")
    return sets


def encode(picture, folder):
    """A picture, {'bytes', 'path'} or path -> PNG in RGB, see-through parts white."""
    if isinstance(picture, dict):
        picture = io.BytesIO(picture["bytes"]) if picture["bytes"] else picture["path"]
    if not isinstance(picture, Image.Image):
        picture = Image.open(folder / picture if isinstance(picture, str) else picture)
    picture, file = picture.convert("RGBA"), io.BytesIO()
    page = Image.new("RGBA", picture.size, "white")
    Image.alpha_composite(page, picture).convert("RGB").save(file, "PNG")
    return {"bytes": file.getvalue(), "path": None}


def convert(rows, recipe, name, folder):
    """Source rows -> (rows of the schema, one complaint for each row left out)."""
    good, bad = [], []
    for index, source_row in enumerate(tqdm(rows, desc=name)):
        try:
            row = recipe(source_row)
            problem = (row["problem"] or "").strip()
            answer = "" if row["answer"] is None else str(row["answer"]).strip()
        except KeyError as error:
            raise SystemExit(f"{name}: no column {error} among {sorted(source_row)}: rename yours, or add a "
                             "recipe to RECIPES in data/prepare.py") from error
        images = row.get("images") or []
        if problem.count("<image>") != len(images):
            bad.append(f"{name} row {index}: {problem.count('<image>')} x <image>, {len(images)} pictures")
        elif not problem or not answer:
            bad.append(f"{name} row {index}: empty problem or answer")
        else:
            good.append({"id": f"{name}-{index}", "problem": problem, "answer": answer,
                         "images": [encode(picture, folder) for picture in images],
                         "choices": [str(choice) for choice in row.get("choices") or []]})
    return good, bad


def main(argv=None):
    parser = argparse.ArgumentParser(description="Write data/NAME/{train,test}.parquet")
    parser.add_argument("name", choices=RECIPES)
    parser.add_argument("--source", help="Hub id, folder, or parquet / json / jsonl file; default: the Hub")
    parser.add_argument("--limit", type=int, help="only the first N rows of each split; default: all")
    parser.add_argument("--out", type=Path, help="folder to write to; default: data/NAME")
    args = parser.parse_args(argv)
    recipe = RECIPES[args.name]
    if args.name == "file" and not args.source:
        parser.error("file needs --source: a parquet, json or jsonl file with columns problem and answer")
    source = [args.source] if args.source else recipe.get("source")
    sets = recipe["generate"]() if "generate" in recipe else load(source)
    out = args.out or Path(__file__).parent / args.name
    out.mkdir(parents=True, exist_ok=True)
    for split in ("train", "test"):
        rows, published = sets[split], recipe.get("rows", {}).get(split)
        if not args.source and len(rows) != published:
            print(f"WARNING: {args.name} {split}: {len(rows)} rows, {published} were published: it changed")
        rows = itertools.islice(rows, args.limit)
        good, bad = convert(rows, recipe["row"], f"{args.name}-{split}", Path(args.source or ".").parent)
        for complaint in bad:
            print("skipped", complaint)
        if not good:
            raise SystemExit(f"{args.name} {split}: no usable row; see above, and the columns of {source}")
        datasets.Dataset.from_list(good, features=FEATURES).to_parquet(out / f"{split}.parquet")
        print(f"{out / split}.parquet: {len(good)} rows, {len(bad)} skipped")


if __name__ == "__main__":
    main()
