"""Recipes: what they say exists, what they promise is compared with what is reached, and their pages are their records'."""

import importlib.util
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest

from saccade.cli import main
from saccade.cli import train_flags as flags
from saccade.cli.commands.recipes import describe_recipe, format_recipe_table
from saccade.cli.commands.train import TrainFlags
from saccade.data import Example
from saccade.data.catalog import DATASETS
from saccade.errors import UsageError
from saccade.metrics import Score, bits_per_byte
from saccade.recipes.promise import (
    add_promised_score,
    check_promise,
    compute_word_perplexity,
    find_changed_flags,
    score_generated_records,
)
from saccade.recipes.recipe import Promise, Recipe, Requirements, load_recipe, load_recipes
from saccade.recipes.record import _collect_samples as samples_of
from saccade.recipes.record import _format_input as asked_of
from saccade.recipes.record import make_record, recipe_digest
from saccade.tasks.registry import task_class

ROOT = Path(__file__).parents[2]
KNOWN = load_recipes()
SCORES = {  # by task: what it gives, and what is made of it
    "translate": {"bleu", "chrf", "exact_match"},
    "label": {"accuracy", "macro_f1", "mcc"},
    "pair": {"accuracy", "f1", "macro_f1"},
    "tag": {"span_f1"},
    "span": {"f1", "exact_match"},
    "summarize": {"rouge_1", "rouge_2", "rouge_l"},
    "language": {
        "perplexity",
        "perplexity_without_cache",
        "bits_per_byte",
        "word_perplexity",
        "validity",
        "uniqueness",
        "novelty",
    },
}
MINE = """[run]
task = "label"
family = "transformer"
description = "little reviews"
inputs = ["good film", "bad film"]

[model]
width = 8
layers = 1
heads = 2
ffn_width = 8

[train]
epochs = 1
batch_tokens = 40
eval_every = 2
precision = "auto"

[promise]
score = "accuracy"
at_least = {least}
minutes = {minutes}
split = "dev"
rationale = "A test."
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [f"{'good' if i % 2 else 'bad'} film number {i}\t{'yes' if i % 2 else 'no'}" for i in range(40)]
    (tmp_path / "reviews.tsv").write_text("text\tlabel\n" + "\n".join(rows) + "\n")
    return tmp_path


def module():
    spec = importlib.util.spec_from_file_location("recipe_pages", ROOT / "benchmarks" / "recipes.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.mark.parametrize("name", KNOWN)
def test_every_setting_of_a_recipe_exists_and_its_promise_can_be_measured(name):
    found, promise = KNOWN[name], KNOWN[name].promise
    family = "bert" if found.requirements.weights else found.family
    usual = flags._default_configs(found, "", family, ())
    flags._check_recipe_settings(found, usual)
    for table, config in usual.items():
        replace(config, **found.tables[table])  # the values are refused here, if they are
    assert promise is not None
    assert promise.score in SCORES[found.task]
    assert promise.split in ("dev", "test")
    assert len(promise.rationale.split()) > 20
    assert found.description
    assert not found.requirements.dataset or found.requirements.dataset in DATASETS
    assert not found.requirements.split_flags or found.requirements.files  # what is parted has to be named
    most = found.tables["train"].get("max_minutes", 0)
    assert most < promise.minutes, "training alone must not take all the minutes"


@pytest.mark.parametrize(
    ("promise", "value", "minutes", "kept", "said"),
    [
        (Promise("bleu", 40, at_least=45), 45.0, 40.0, True, "reached 45 in 40.0 minutes: kept"),
        (Promise("bleu", 40, at_least=45), 44.9, 39.0, False, "NOT KEPT: the score was missed"),
        (Promise("bleu", 40, at_least=45), 46.0, 40.1, False, "NOT KEPT: it took longer"),
        (Promise("bleu", 40, at_least=45), 1.0, 50.0, False, "the score was missed and it took longer"),
        (Promise("bleu", 40, at_most=5.2), 5.3, 1.0, False, "at most 5.2"),
        (Promise("bleu", 40, at_most=5.2), 5.1, 1.0, True, "kept"),
        (Promise("bleu", 40), 0.0, 1.0, True, "bleu, reported"),
        (Promise("chrf", 40, at_least=1), 9.0, 1.0, None, "there is no chrf on test"),
    ],
)
def test_a_promise_is_compared_with_both_numbers(promise, value, minutes, kept, said):
    scores = {"test": [Score("bleu", value, value, value, 9)]}
    found = check_promise(Recipe("translate", "mine", promise=promise), scores, minutes)
    assert found is not None
    assert found.is_kept is kept
    assert said in found.message
    cut = check_promise(Recipe("translate", "mine", promise=promise), scores, minutes, ["--train.max-steps 3"])
    assert cut is not None
    assert cut.is_kept is None
    assert "not compared: the recipe was changed by --train.max-steps 3" in cut.message
    assert check_promise(Recipe("translate"), scores, minutes) is None


def test_flags_that_make_it_another_run_are_named():
    def of(*dotted, **given):
        request = flags.make_request("train", TrainFlags("dates", **given), list(dotted))
        return find_changed_flags(request.recipe, request.job, request.overrides)

    assert of() == []
    assert of("--train.save-minutes", "1", "--train.epochs", "7") == []  # one is quiet, the other as it is
    assert of("--train.max-steps", "3", "--model.width", "8") == ["--model.width 8", "--train.max-steps 3"]
    assert of(data=("mine.tsv",)) == ["--data"]
    request = flags.make_request("train", TrainFlags("dates"), [])
    assert find_changed_flags(request.recipe, replace(request.job, family="rnn"), {}) == ["--family rnn"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[run]\ntask = "label"\n[promise]\nscore = "f1"\n', "has no minutes; add minutes"),
        ('[run]\ntask = "label"\n[promise]\nscore = "f1"\nminutes = 1\natleast = 1\n', "did you mean 'at_least'?"),
        (
            '[run]\ntask = "label"\n[promise]\nscore = "f1"\nminutes = 1\nat_least = 1\nat_most = 2\n',
            "at_least or at_most, not both",
        ),
        ('[run]\ntask = "label"\nneeds = "luck"\n', "unknown key 'needs'"),
    ],
)
def test_a_wrong_promise_is_refused(text, said, tmp_path):
    (tmp_path / "odd.toml").write_text(text)
    with pytest.raises(UsageError, match=said.replace("?", r"\?")):
        load_recipe(str(tmp_path / "odd.toml"))


def test_what_a_recipe_needs_is_a_command_that_can_be_typed(capsys):
    need = Requirements("set", ("a*",), {"dev": 5, "group_column": "1", "on_bad_record": "skip"}, "weights")
    assert "saccade data split FILE... --dev 5 --group-column 1 --on-bad-record skip --out DIRECTORY" in str(need)
    assert str(need).endswith("--model DIRECTORY of weights")
    assert main(["train", "sick", "--data", "here"]) == 2
    assert "all-MiniLM-L6-v2" in capsys.readouterr().err


def test_a_recipe_on_data_of_its_own_is_not_compared_on_other_data(here, capsys):
    (here / "mine.toml").write_text(MINE.format(least=2, minutes=60))
    assert main(["train", "mine.toml", "--data", "reviews.tsv", "--out", "run"]) == 0
    said = capsys.readouterr().out
    assert "accuracy at least 2 on dev" in said
    assert "not compared: the recipe was changed by --data" in said


def with_set(here, **given):
    """The same recipe, which asks for data."""
    (here / "mine.toml").write_text(MINE.format(**given).replace("description =", 'dataset = "sst2"\ndescription ='))
    return load_recipe("mine.toml")


def test_kept_and_broken_promises_of_whole_runs_and_their_record(here, capsys):
    with_set(here, least=2, minutes=60)
    assert main(["train", "mine.toml", "--data", "reviews.tsv", "--out", "run", "--json"]) == 0
    out, err = capsys.readouterr()
    told = json.loads(out)
    assert told["promise"]["is_kept"] is False
    assert "NOT KEPT: the score was missed" in err
    found = with_set(here, least=0, minutes=60)
    assert main(["train", "mine.toml", "--data", "reviews.tsv", "--out", "other"]) == 0
    assert ": kept" in capsys.readouterr().out
    assert main(["train", "mine.toml", "--data", "reviews.tsv", "--out", "third", "--train.max-steps", "1"]) == 0
    assert "not compared: the recipe was changed by --train.max-steps 1" in capsys.readouterr().out

    record = make_record(Path("run"), found)
    accuracy = next(score for score in told["scores"]["dev"] if score["name"] == "accuracy")
    assert record["scores"]["dev"][0] == accuracy
    assert record["minutes"] >= 0
    assert record["precision"] in ("float32", "bfloat16")  # what the machine made of auto
    assert [sample["input"] for sample in record["samples"]] == ["good film", "bad film"]
    assert len(record["curve"]["loss"]) <= 60
    assert record["curve"]["accuracy"][-1][0] == record["steps"]
    assert json.loads(json.dumps(record, ensure_ascii=False)) == json.loads(json.dumps(record))
    told = "\n".join(describe_recipe(found, record))
    assert record["date"] in told
    assert f"{accuracy['value']:.3f}" in told
    assert "60 min" in format_recipe_table({"mine": found}, {"mine": record})
    assert "before the recipe changed" in format_recipe_table({"mine": replace(found, family="rnn")}, {"mine": record})
    pages = module()
    row = pages.table({"mine": found}, {"mine": record}).splitlines()[-1]
    assert f"accuracy {accuracy['value']:.3f}" in row
    assert "good film" in pages.page({"mine": found}, {"mine": record})
    assert "products in bfloat16." in pages.page({"mine": found}, {"mine": record | {"precision": "bfloat16"}})
    assert pages.picture({**record, "recipe": "mine"}).startswith("<svg")
    other = replace(found, tables={**found.tables, "train": {**found.tables["train"], "batch_tokens": 41}})
    assert (
        recipe_digest(other) != recipe_digest(found) == recipe_digest(replace(found, description="else", promise=None))
    )
    with pytest.raises(UsageError, match=r"train\.batch_tokens is 40, not 41"):
        make_record(Path("run"), other)
    with pytest.raises(UsageError, match="is not a finished run"):
        make_record(here, found)


def test_a_record_is_of_weights_that_drop_what_they_dropped(here):
    found = with_set(here, least=0, minutes=60)
    assert main(["train", "mine.toml", "--data", "reviews.tsv", "--out", "first"]) == 0
    asks = replace(
        found,
        requirements=Requirements("sst2", weights="first"),
        model="",
        tables={**found.tables, "model": {}},
    )
    drier = replace(asks, tables={**asks.tables, "model": {"dropout": 0.3}})
    begin = ["train", "label", "--data", "reviews.tsv", "--model", "first"]
    begin += [f"--train.{name.replace('_', '-')}={value}" for name, value in found.tables["train"].items()]
    begin += [f"--task.{name}={value}" for name, value in found.tables["task"].items()]
    assert main([*begin, "--out", "same"]) == main([*begin, "--out", "drier", "--model.dropout", "0.3"]) == 0
    assert (
        make_record(Path("same"), asks)["digest"] == recipe_digest(asks) != make_record(Path("drier"), drier)["digest"]
    )
    with pytest.raises(UsageError, match=r"model\.dropout is 0\.3, not 0\.\d"):
        make_record(Path("drier"), asks)
    with pytest.raises(UsageError, match=r"model\.dropout is 0\.\d, not 0\.3"):
        make_record(Path("same"), drier)


def test_perplexity_of_words_is_that_of_all_nats_over_all_words():
    texts = ["The cat sat on the mat .\n", "Über 3 words\n"]
    nats, size = [31.0, 17.5], [len(text.encode()) for text in texts]
    found = compute_word_perplexity([bits_per_byte(nats, size)], [Example({"text": text}) for text in texts])
    assert found[0].value == pytest.approx(math.exp(sum(nats) / 10))
    assert found[0].low <= found[0].value <= found[0].high


def test_validity_is_what_generate_counts(here, capsys):
    (here / "proteins.txt").write_text("".join(f"{'MKVGGA'[i % 5 :]}{'ACDE'[i % 4]}\n" for i in range(60)))
    words = [
        "train",
        "language",
        "--data",
        "proteins.txt",
        "--out",
        "run",
        "--task.record-format",
        "protein",
        "--task.max-tokens",
    ]
    words += [
        "12",
        "--task.tokenizer",
        "characters",
        "--train.max-steps",
        "5",
        "--model.width",
        "8",
        "--model.ffn-width",
        "8",
    ]
    assert main(words) == 0
    capsys.readouterr()
    assert main(["generate", "run", "--count", "20", "--check", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    found = {score.name: score.value for score in score_generated_records(Path("run"), 20)}
    assert found == {name: said[name] for name in ("validity", "uniqueness", "novelty")}
    kind = Recipe("language", promise=Promise("validity", 1, split="dev"))
    scores = {"dev": [Score("perplexity", 2.0, 2.0, 2.0, 9)]}
    names = [score.name for score in add_promised_score(kind, scores, Path("run"))["dev"]]
    assert names == ["perplexity", "validity", "uniqueness", "novelty"]
    assert len(samples_of(Path("run"), kind)) == 5
    texts = replace(kind, promise=Promise("word_perplexity", 1, split="dev"))
    assert [score.name for score in add_promised_score(texts, scores, Path("run"))["dev"]] == ["perplexity"]  # no bits


def test_samples_of_a_language_model_continue_the_inputs_of_its_recipe(here):
    (here / "text.txt").write_text("a small cat sat on a mat\n" * 40)
    flags = "--task.tokenizer characters --task.max-tokens 12 --train.max-steps 5 --model.width 8 --model.ffn-width 8"
    assert main(["train", "language", "--data", "text.txt", "--out", "run", *flags.split()]) == 0
    samples = samples_of(Path("run"), Recipe("language", inputs=("a cat", "on a mat")))
    assert [sample["input"] for sample in samples] == ["a cat", "on a mat"]
    assert all(sample["answer"].startswith(sample["input"]) for sample in samples)
    assert all(len(sample["answer"]) > len(sample["input"]) for sample in samples)
    assert [sample["input"] for sample in samples_of(Path("run"), Recipe("language"))] == ["\n"] * 5


def test_what_was_asked_is_shown_without_its_gold():
    asked = [
        ("pair", Example({"first": "One.", "second": "Two.", "label": "neutral"})),
        ("tag", Example({"words": ["Ada", "ran"], "tags": ["B-PER", "O"]})),
        ("tag", Example({"words": ["Ada", "ran", "."], "text": "Ada ran.", "offsets": [[0, 3], [4, 7], [7, 8]]})),
        ("label", Example({"image": 1, "label": "7"}, "some/t10k.gz", 3)),
    ]
    told = [asked_of(task_class(name)(), example) for name, example in asked]
    assert told == ["One. | Two.", "Ada ran", "Ada ran.", "t10k.gz, record 3"]


def test_the_pages_are_made_from_the_records():
    from saccade.recipes.record import load_records

    pages, measured = module(), load_records()
    assert pages.PAGE.read_text(encoding="utf-8") == pages.page(KNOWN, measured), "benchmarks/recipes.py page"
    assert set(measured) <= set(KNOWN)
    for name, record in measured.items():
        assert (pages.PICTURES / f"{name}.svg").read_text(encoding="utf-8") == pages.picture(record)


@pytest.mark.parametrize("name", KNOWN)
def test_answers_are_read_critically_and_quoted_as_they_are(name):
    """A reading of answers that a later training has changed would speak of what is not there."""
    from saccade.recipes.record import load_records

    samples = load_records()[name]["samples"]
    assert len(samples) >= 5
    reading = " ".join(KNOWN[name].promise.sample_review.split())
    assert reading, f"{name}.toml: read the answers in its record, and say what they are worth"
    told = [" ".join(sample[key].split()) for sample in samples for key in ("input", "answer")]
    for quoted in re.findall(r'"([^"]+)"', reading):
        assert any(quoted in text for text in told), f"{name}: {quoted!r} is not among its answers"


def test_files_of_a_set_come_in_the_order_of_the_recipe(tmp_path):
    (tmp_path / "multi30k").mkdir()
    for name in ("train.de.gz", "train.en.gz", "val.de", "val.en", "README.md"):
        (tmp_path / "multi30k" / name).touch()
    pages = module()
    found = [path.name for path in pages.given(KNOWN["multi30k-en-de"], tmp_path)]
    assert found == ["train.en.gz", "train.de.gz", "val.en", "val.de"]
    assert pages.missing(KNOWN["sick"], tmp_path, tmp_path).endswith("sick")
    assert pages.missing(KNOWN["multi30k-en-de"], tmp_path, tmp_path) == ""
    with pytest.raises(UsageError, match="saccade data get squad"):
        pages.given(KNOWN["squad"], tmp_path)


def test_a_run_parts_its_data_trains_and_is_left_out_once_recorded(tmp_path, monkeypatch, capsys):
    pages, calls, kept = module(), [], []
    monkeypatch.setattr(pages, "_saccade", lambda *words: calls.append(words))
    monkeypatch.setattr(pages, "keep", lambda recipe, run: kept.append((recipe.name, run)))
    monkeypatch.setattr(pages, "load_records", dict)
    found = KNOWN["squad"]
    pages.run(found, tmp_path / "data", tmp_path / "models", tmp_path / "runs")
    assert "left out, as there is no" in capsys.readouterr().out
    assert not calls
    (tmp_path / "models" / "all-MiniLM-L6-v2").mkdir(parents=True)
    (tmp_path / "data" / "squad").mkdir(parents=True)
    (tmp_path / "data" / "squad" / "dev-v1.1.json.gz").touch()
    pages.run(found, tmp_path / "data", tmp_path / "models", tmp_path / "runs")
    (split, train), out = calls, tmp_path / "runs" / "squad"
    parted = str(tmp_path / "runs" / "data" / "squad")
    assert split[:3] == ("data", "split", str(tmp_path / "data" / "squad" / "dev-v1.1.json.gz"))
    assert split[3:] == ("--dev", "5", "--test", "5", "--group-column", "title", "--out", parted)
    weights = str(tmp_path / "models" / "all-MiniLM-L6-v2")
    assert train == ("train", "squad", "--data", parted, "--model", weights, "--out", str(out))
    assert kept == [("squad", out)]
    monkeypatch.setattr(pages, "load_records", lambda: {"squad": {"digest": recipe_digest(found)}})
    pages.run(found, tmp_path / "data", tmp_path / "models", tmp_path / "runs")
    assert "recorded already" in capsys.readouterr().out
    assert len(calls) == 2


def test_a_recipe_given_a_directory_takes_the_files_it_names(tmp_path):
    """A further language beside its own, as Multi30k has it, is no part of the set."""
    names = [f"{split}.{language}" for split in ("train", "val", "test_2016_flickr") for language in ("en", "de", "fr")]
    for name in names:
        (tmp_path / name).write_text(f"{name} one\n{name} two\n")
    found = flags.make_request("train", TrainFlags("multi30k-en-de", data=(str(tmp_path),)), [])
    assert [Path(path).name for path in found.job.data] == [name for name in names if not name.endswith("fr")]
    (tmp_path / "val.de").unlink()  # then it is a set of the user's own
    assert flags.make_request("train", TrainFlags("multi30k-en-de", data=(str(tmp_path),)), []).job.data == (
        str(tmp_path),
    )


def test_a_recipe_given_files_or_a_directory_of_parts_takes_them_as_they_are(tmp_path):
    (tmp_path / "deu.txt").write_text("a\tb\n")
    for data in ((str(tmp_path / "deu.txt"),), (str(tmp_path),)):
        assert flags.make_request("train", TrainFlags("tatoeba-en-de", data=data), []).job.data == data


def test_recipes_have_the_settings_that_their_records_were_trained_with():
    """Settings that were renamed have the same values: the file holds them as they were trained, under today's names."""
    trained = json.loads((Path(__file__).parent / "settings_of_records.json").read_text(encoding="utf-8"))
    for name, tables in trained.items():
        found = {table: json.loads(json.dumps(dict(values))) for table, values in KNOWN[name].tables.items()}
        assert found == tables, name
