"""The study of nested lists: their values by another path, sizes that are equal, and the whole study on a few short lists."""

import json
import random
import statistics

import pytest

from saccade.bench import peak_memory
from saccade.cli import main
from saccade.errors import DataError
from saccade.studies.listops import data, matched_models, study
from saccade.studies.study import StudyPlan, is_trained, train_runs
from saccade.training.prepare import Job


def worked_out(words):
    """The value of a list by recursion from the left, where `solve` keeps open lists on a pile."""
    word = words.pop(0)
    if word.isdigit():
        return int(word)
    values = []
    while words[0] != "X":
        values.append(worked_out(words))
    words.pop(0)
    ordered = sorted(values)
    if word == "MED":
        return int((ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2)
    return {"MAX": ordered[-1], "MIN": ordered[0], "SM": sum(values) % 10}[word]


def test_values_are_those_of_a_recursion():
    made = data.make_set("some", 40, (5, 60), seed=3)
    assert all(5 <= len(text.split()) <= 60 for text in made.texts)
    assert [str(worked_out(text.split())) for text in made.texts] == made.labels
    assert len(set(made.texts)) == 40
    assert set(made.labels) != {made.labels[0]}


def test_the_same_seed_makes_the_same_lists_and_another_makes_others():
    first, again, other = (data.make_set("some", 5, (5, 30), seed=seed).texts for seed in (1, 1, 2))
    assert first == again
    assert first != other


def bracketed(text):
    """A list as the Long Range Arena writes it, with brackets that only group."""
    return " ".join({"X": "] )"}.get(word, word if word.isdigit() else f"( [{word}") for word in text.split())


def table(path, made):
    rows = "".join(f"{bracketed(text)}\t{label}\n" for text, label in zip(made.texts, made.labels, strict=True))
    path.write_text("Source\tTarget\n" + rows, encoding="utf-8")
    return str(path)


def test_files_are_read_without_their_brackets_and_from_short_to_long(tmp_path):
    short, long = data.make_set("a", 7, (5, 20)), data.make_set("b", 5, (30, 60))
    table(tmp_path / "a_long.tsv", long)
    table(tmp_path / "b_short.tsv", short)
    found = data.read_sets([str(tmp_path)])
    assert [one.name for one in found] == ["b_short", "a_long"]
    assert found[0].texts == short.texts
    assert found[1].labels == long.labels


def test_a_label_that_is_not_the_value_is_an_error_with_its_line(tmp_path):
    path = tmp_path / "lists.tsv"
    path.write_text("Source\tTarget\n[MAX 1 2 ]\t2\n[MIN 1 2 ]\t7\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"lists.tsv:3.*value 1.*label is 7"):
        data.read_sets([str(path)])


def test_a_word_that_is_none_of_the_lists_is_named(tmp_path):
    path = tmp_path / "lists.tsv"
    path.write_text("Source\tTarget\n[MOST 1 2 ]\t2\n", encoding="utf-8")
    with pytest.raises(DataError, match="MOST"):
        data.read_sets([str(path)])


def counted(vocab, width, layers, inner):
    """Parameters of the plain reader with ten labels, by the formula: words, attention, feed-forward, norms and head."""
    attention = 4 * (width * width + width)
    forward = 2 * width * inner + inner + width
    return vocab * width + layers * (attention + forward + 4 * width) + 2 * width + 10 * width + 10


def test_all_readers_have_equal_parameters():
    found = matched_models.match_parameters(
        matched_models.MODEL_SPECS, {"vocab": 20, "max_positions": 256, "dropout": 0.1}, 10
    )
    sizes = {one.spec.name: one.parameters for one in found}
    assert list(sizes) == ["full", "windowed", "bigbird", "lsh", "low rank", "rnn"]
    assert max(sizes.values()) / min(sizes.values()) < 1.02
    full = found[0]
    assert full.parameters == counted(20, 128, 2, full.fields["ffn_width"])
    assert (
        found[4].parameters == counted(20, 128, 2, found[4].fields["ffn_width"]) + 2 * 2 * 64 * 256
    )  # E and F of each layer


def test_a_size_that_cannot_be_met_is_refused():
    coarse = (
        *matched_models.MODEL_SPECS[:1],
        matched_models.ModelSpec("rnn", "rnn_encoder", {"layers": 1}, "width", 64, 64),
    )
    with pytest.raises(ValueError, match=r"rnn has .* no size is within 2%"):
        matched_models.match_parameters(coarse, {"vocab": 11, "max_positions": 16, "dropout": 0.0}, 3)


@pytest.mark.parametrize("target", [1, 70, 71, 999, 5000])
def test_halving_finds_the_size_that_trying_all_finds(target):
    reader = matched_models.ModelSpec("one", "rnn_encoder", {}, "width", 4, 2)

    def make(value):
        return matched_models.MatchedModel(reader, {"width": value}, 3 * value * value + value)

    best = min((make(value) for value in range(4, 200, 2)), key=lambda one: abs(one.parameters - target))
    assert matched_models.find_nearest_size(reader, target, make).parameters == best.parameters


@pytest.fixture
def two_readers(monkeypatch):
    """One that reads texts of any length and one that has a limit; small, and their memory is not measured."""
    small = {"width": 16, "layers": 1}
    full = matched_models.ModelSpec("full", "transformer_encoder", {**small, "mechanism": "scaled_dot"}, "ffn_width", 8)
    low = matched_models.ModelSpec(
        "low rank", "transformer_encoder", {**small, "mechanism": "low_rank"}, "ffn_width", 8
    )
    monkeypatch.setattr(study, "MODEL_SPECS", (full, low))
    monkeypatch.setattr(peak_memory, "measure_peak_cached", lambda job, kept: 1.5)
    study._match_models.cache_clear()
    study.load_sets.cache_clear()
    yield
    study._match_models.cache_clear()
    study.load_sets.cache_clear()


def test_the_whole_study_is_carried_out_once(two_readers, tmp_path, capsys):
    files = [
        table(tmp_path / "short.tsv", data.make_set("a", 50, (5, 12))),
        table(tmp_path / "long.tsv", data.make_set("b", 30, (20, 40))),
    ]
    out = tmp_path / "study"
    words = ["study", "listops", "--data", *files, "--out", str(out), "--minutes", "0.002"]
    assert main([*words, "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "short-low-rank" in said
    assert "nothing was written." in said
    assert not out.exists()
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "4 of 4: long-low-rank" in said
    record = json.loads((out / "record.json").read_text(encoding="utf-8"))
    assert (out / "plot.png").stat().st_size > 10_000
    checked(out, record)
    before = (out / "short-full" / "result.json").stat().st_mtime_ns
    assert main([*words, "--json"]) == 0
    again = capsys.readouterr()
    assert "1 of 4: short-full, already trained" in again.err
    assert json.loads(again.out)["models"] == record["models"]
    assert (out / "short-full" / "result.json").stat().st_mtime_ns == before


def checked(out, record):
    """What a record says, by another path: from the files of the runs."""
    names = [(line["set"], line["model"]) for line in record["models"]]
    assert names == [("short", "full"), ("short", "low rank"), ("long", "full"), ("long", "low rank")]
    test = (out / "data" / "short" / "test.tsv").read_text(encoding="utf-8").splitlines()[1:]
    train = (out / "data" / "short" / "train.tsv").read_text(encoding="utf-8").splitlines()[1:]
    labels = [row.split("\t")[1] for row in train]
    common = record["sets"][0]["majority"]
    assert labels.count(common["label"]) == max(map(labels.count, labels))
    assert common["value"] == pytest.approx(sum(row.endswith(f"\t{common['label']}") for row in test) / len(test))
    speed = [json.loads(row) for row in (out / "short-full" / "speed.jsonl").read_text(encoding="utf-8").splitlines()]
    assert record["models"][0]["seconds_per_step"] == round(statistics.median(row["seconds"] for row in speed), 4)
    assert len(speed) == record["models"][0]["steps"]
    full, low = record["models"][0]["longer_lists"], record["models"][1]["longer_lists"]
    assert full["count"] == record["models"][2]["accuracy"]["count"] == 9
    assert "16 tokens" in low["refused"]
    grid = study.STUDY.make_tables(record)[0]
    always = [f"always {one['majority']['label']}" for one in record["sets"]]
    assert [row[0] for row in grid.rows] == ["full", "low rank", "full", "low rank", *always]
    assert grid.rows[1][-1] == "not supported"
    assert all(len(row) == len(grid.headers) for row in grid.rows)


def test_other_lists_in_the_same_directory_are_refused(two_readers, tmp_path):
    first = table(tmp_path / "short.tsv", data.make_set("a", 20, (5, 12)))
    next(train_runs(study.STUDY, StudyPlan(tmp_path / "study", (first,))))
    next(train_runs(study.STUDY, StudyPlan(tmp_path / "study", (first,))))
    with pytest.raises(ValueError, match=r"another seed.*another --out"):
        next(train_runs(study.STUDY, StudyPlan(tmp_path / "study", (first,), seed=1)))
    table(tmp_path / "short.tsv", data.make_set("c", 20, (5, 12)))
    study.load_sets.cache_clear()
    with pytest.raises(ValueError, match=r"other data.*another --out"):
        next(train_runs(study.STUDY, StudyPlan(tmp_path / "study", (first,))))


def test_parts_of_a_set_share_no_list(two_readers, tmp_path):
    study.prepare_data(StudyPlan(tmp_path, (table(tmp_path / "short.tsv", data.make_set("a", 40, (5, 12))),)))
    parts = {
        name: set((tmp_path / "data" / "short" / f"{name}.tsv").read_text(encoding="utf-8").splitlines()[1:])
        for name in ("train", "dev", "test")
    }
    assert {name: len(rows) for name, rows in parts.items()} == {"train": 24, "dev": 4, "test": 12}
    assert len(set.union(*parts.values())) == 40


def test_a_run_of_other_settings_does_not_count_as_trained(tmp_path):
    (tmp_path / "result.json").write_text("{}")
    text = '[run]\ntask = "label"\ndata = []\n[model]\nwidth = 8\n[task]\n[train]\nseed = 0\nmax_minutes = 1.0\n'
    (tmp_path / "config.toml").write_text(text)
    job = Job("label", train_fields={"seed": 0, "max_minutes": 1.0}, model_fields={"width": 8})
    assert is_trained(tmp_path, job)
    assert not is_trained(tmp_path, Job("label", train_fields={"seed": 1}))
    assert not is_trained(tmp_path, Job("label", train_fields={"max_minutes": 2.0}))
    assert not is_trained(tmp_path, Job("label", ("a.tsv",)))
    assert not is_trained(tmp_path / "nowhere", job)
    assert is_trained(tmp_path, Job("label", train_fields={"precision": "auto"}))  # the machine chose
    assert not is_trained(tmp_path, Job("label", train_fields={"precision": "bfloat16"}))


@pytest.mark.nightly
def test_longer_texts_and_wider_models_take_more_memory(tmp_path):
    chance = random.Random(0)

    def job(words, width):
        rows = [" ".join(str(chance.randint(0, 9)) for _ in range(words)) + f"\t{i % 2}" for i in range(24)]
        path = tmp_path / f"{words}.tsv"
        path.write_text("text\tlabel\n" + "\n".join(rows) + "\n", encoding="utf-8")
        sizes = {"width": width, "layers": 2, "max_positions": words + 2}
        read = {"max_tokens": words + 2, "tokenizer": "words"}
        return Job("label", (str(path),), "transformer_encoder", model_fields=sizes, task_fields=read)

    # each in a process of its own: what a process has held and let go hides what it takes again
    small, large = (
        peak_memory.measure_peak_cached(job(words, width), tmp_path / f"{words}.json")
        for words, width in ((8, 16), (400, 128))
    )
    if small is None or large is None:
        pytest.skip("this system does not say how much memory a process has held")
    assert large > small + 5
