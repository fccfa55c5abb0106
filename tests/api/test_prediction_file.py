"""Predictions beside the columns of a file: `predict --out` and `run.predict_file`, in every format and in constant memory."""

import csv
import json
import tracemalloc

import pandas as pd
import pytest

import saccade
from saccade.cli import main
from saccade.data.table_writer import TableWriter
from saccade.errors import DataError, UsageError

READERS = {
    ".csv": pd.read_csv,
    ".tsv": lambda path: pd.read_csv(path, sep="\t", quoting=csv.QUOTE_NONE),
    ".jsonl": lambda path: pd.read_json(path, lines=True),
    ".parquet": pd.read_parquet,
}


@pytest.mark.parametrize("suffix", READERS)
def test_all_columns_are_kept_in_order(trained, reviews, tmp_path, suffix, capsys):
    run, frame = trained["good"], pd.read_csv(reviews)
    if suffix == ".tsv":
        frame["note"] = "plain"
        frame.to_csv(reviews, index=False)
    out = tmp_path / f"out{suffix}"
    assert main(["predict", str(run.path), "--data", str(reviews), "--out", str(out)]) == 0
    printed = capsys.readouterr()
    assert printed.out == ""
    assert f"wrote {len(frame)} predictions to {out}" in printed.err
    table = READERS[suffix](out)
    assert list(table.columns) == [*frame.columns, "predicted_label", "predicted_probability"]
    assert table[list(frame.columns)].to_dict("records") == frame.to_dict("records")
    expected = run.predict(frame)
    assert table["predicted_label"].tolist() == [one.label for one in expected]
    assert table["predicted_probability"].tolist() == pytest.approx([one.probability for one in expected], abs=1e-5)


def test_python_writes_the_same_file(trained, reviews, tmp_path):
    assert main(["label", str(trained["good"].path), "--data", str(reviews), "--out", str(tmp_path / "a.csv")]) == 0
    written = trained["good"].predict_file(reviews, tmp_path / "b.csv", batch_size=7)
    assert (written.path, written.count) == (tmp_path / "b.csv", 160)
    first, second = (pd.read_csv(tmp_path / name) for name in ("a.csv", "b.csv"))
    probability = "predicted_probability"
    assert second[probability].tolist() == pytest.approx(first.pop(probability).tolist(), abs=1e-5)
    assert first.equals(second.drop(columns=probability))


def test_predictions_of_two_models_stand_side_by_side(trained, reviews, tmp_path):
    trained["good"].predict_file(reviews, tmp_path / "one.csv")
    trained["poor"].predict_file(tmp_path / "one.csv", tmp_path / "two.csv")
    columns = list(pd.read_csv(tmp_path / "two.csv").columns)
    assert columns[-4:] == ["predicted_label", "predicted_probability", "predicted_label_2", "predicted_probability_2"]


def test_json_is_what_python_returns_with_id_and_line(trained, reviews, capsys):
    run = trained["good"]
    capsys.readouterr()
    assert main(["predict", str(run.path), "--data", str(reviews), "--json"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert found == run.predict(reviews).as_dicts()
    lines = reviews.read_text().splitlines()
    for row in found:
        assert lines[row["line"] - 1].startswith(f"{row['id']},")
    assert list(found[0]) == ["id", "line", "label", "probability", "probabilities"]


def test_memory_and_reading_ahead_do_not_grow_with_the_file(trained, tmp_path, monkeypatch):
    run, peaks = trained["good"], []
    ahead = []
    write = TableWriter.write
    monkeypatch.setattr(TableWriter, "write", lambda table, row: (ahead.append(row["n"]), write(table, row))[1])
    for count in (3_000, 12_000):
        with (tmp_path / "big.csv").open("w") as file:
            file.write("n,review\n")
            file.writelines(f"{n},a lovely film {'and so on ' * 20}\n" for n in range(count))
        tracemalloc.start()
        run.predict_file(tmp_path / "big.csv", tmp_path / "out.csv", progress=False)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert ahead == [str(n) for n in range(count)]
        ahead.clear()
    assert peaks[1] < 1.3 * peaks[0]


def test_bad_records_stop_or_are_left_out(trained, tmp_path, capsys):
    run = str(trained["good"].path)
    lines = [f"{n},a great film" for n in range(30)]
    lines[7] = "7,a great film,too many"
    (tmp_path / "bad.csv").write_text("\n".join(["n,review", *lines]) + "\n")
    (tmp_path / "out.csv").write_text("old")
    call = ["predict", run, "--data", str(tmp_path / "bad.csv"), "--out", str(tmp_path / "out.csv")]
    assert main(call) == 3
    assert "bad.csv:9: expected 2 cells, got 3" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.csv", "out.csv"]
    assert (tmp_path / "out.csv").read_text() == "old"
    assert main([*call, "--on-bad-record", "skip"]) == 3  # more than one in a hundred
    assert (tmp_path / "out.csv").read_text() == "old"
    capsys.readouterr()
    assert main([*call, "--on-bad-record", "skip", "--max-bad-fraction", "0.1"]) == 0
    assert "wrote 29 predictions" in (said := capsys.readouterr().err)
    assert "1 bad records were left out; the first: " in said
    assert pd.read_csv(tmp_path / "out.csv")["n"].tolist() == [n for n in range(30) if n != 7]
    with pytest.raises(DataError, match="expected 2 cells"):
        trained["good"].predict_file(tmp_path / "bad.csv", tmp_path / "out.csv")


def test_a_byte_order_mark_stays_one(trained, tmp_path):
    for bom in (b"", b"\xef\xbb\xbf"):
        (tmp_path / "in.csv").write_bytes(bom + "review,note\na great film,naïve\n".encode())
        trained["good"].predict_file(tmp_path / "in.csv", tmp_path / "out.csv")
        found = (tmp_path / "out.csv").read_bytes()
        assert found.startswith(bom + b"review,note,predicted_label")


def test_outputs_that_make_no_sense_are_refused(trained, reviews, tmp_path, capsys):
    run = str(trained["good"].path)
    data = ["--data", str(reviews)]
    for words, message in [
        ([*data, "--out", str(reviews)], "is also the data"),
        ([*data, "--out", str(tmp_path / "a.txt")], "the suffix of the file says its format"),
        ([*data, "--out", str(tmp_path / "a.csv"), "--json"], "use --out FILE.jsonl"),
    ]:
        assert main(["predict", run, *words]) == 2
        assert message in capsys.readouterr().err
    with pytest.raises(UsageError, match="generates no text, so beams does not apply"):
        trained["good"].predict_file(reviews, tmp_path / "a.csv", beams=3)


def test_texts_of_the_command_line_have_their_text(trained, tmp_path):
    call = ["predict", str(trained["good"].path), "a great film", "a boring film"]
    assert main([*call, "--out", str(tmp_path / "a.csv")]) == 0
    assert pd.read_csv(tmp_path / "a.csv")["text"].tolist() == ["a great film", "a boring film"]


def test_entities_are_json_and_translations_have_scores(tmp_path):
    sizes = {"width": 16, "layers": 1, "heads": 2, "ffn_width": 16}
    short = {"architecture": sizes, "train": {"max_steps": 2, "max_eval_examples": 4}}
    tag, translate = (saccade.train(name, out=tmp_path / name, **short) for name in ("tag", "translate"))
    (tmp_path / "in.jsonl").write_text('{"id": "x", "text": "Ada Lovelace wrote to Charles in London."}\n')
    tag.predict_file(tmp_path / "in.jsonl", tmp_path / "tags.csv")
    (row,) = pd.read_csv(tmp_path / "tags.csv").to_dict("records")
    expected = tag.predict(tmp_path / "in.jsonl")[0].as_dict()
    assert (json.loads(row["predicted_entities"]), row["id"]) == (expected["entities"], "x")
    (tmp_path / "dates.csv").write_text("source\n3 mai 2019\n5 juin 2030\n")
    translate.predict_file(tmp_path / "dates.csv", tmp_path / "d.csv", beams=2, max_new_tokens=4)
    call = ["translate", str(tmp_path / "translate"), "--data", str(tmp_path / "dates.csv"), "--beams", "2"]
    assert main([*call, "--max-new-tokens", "4", "--out", str(tmp_path / "e.csv")]) == 0
    first, second = (pd.read_csv(tmp_path / name, keep_default_na=False) for name in ("d.csv", "e.csv"))
    assert first["predicted_text"].tolist() == second["predicted_text"].tolist()
    best = translate.predict(["3 mai 2019", "5 juin 2030"], beams=2, max_new_tokens=4)
    assert first["predicted_score"].tolist() == pytest.approx([one.score for one in best], abs=1e-4)


def test_offsets_of_words_refer_to_a_column_of_the_file(tmp_path):
    """Words of CoNLL are joined to the text that offsets refer to, and it is written; a text of the data is not written twice."""
    sentences = [["Ada", "met", "Bob", "."], ["Bob", "slept"], ["rain"]] * 8
    tagged = [[f"{word}\t{'B-PER' if word[0].isupper() else 'O'}" for word in words] for words in sentences]
    (tmp_path / "names.conll").write_text("\n\n".join("\n".join(rows) for rows in tagged) + "\n", encoding="utf-8")
    sizes = {"width": 16, "layers": 1, "heads": 2, "ffn_width": 16}
    train = {"epochs": 30, "lr": 1e-2, "batch_tokens": 64}
    run = saccade.train("tag", tmp_path / "names.conll", out=tmp_path / "run", architecture=sizes, train=train)
    run.predict_file(tmp_path / "names.conll", tmp_path / "out.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [row["text"] for row in rows] == [" ".join(words) for words in sentences]
    entities = [(row, entity) for row in rows for entity in row["predicted_entities"]]
    assert entities
    assert all(row["text"][entity["start"] : entity["end"]] == entity["text"] for row, entity in entities)
    both = [{"text": "Ada  met Bob", "tokens": ["Ada", "met", "Bob"]}, {"text": " rain", "tokens": ["rain"]}]
    pd.DataFrame(both).to_json(tmp_path / "both.jsonl", orient="records", lines=True)
    run.predict_file(tmp_path / "both.jsonl", tmp_path / "two.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "two.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [(row["text"], row["joined_text"]) for row in rows] == [("Ada  met Bob", "Ada met Bob"), (" rain", "rain")]
    (tmp_path / "texts.csv").write_text("id,text\n7,Ada met Bob\n", encoding="utf-8")
    run.predict_file(tmp_path / "texts.csv", tmp_path / "three.csv")
    assert list(pd.read_csv(tmp_path / "three.csv").columns) == ["id", "text", "predicted_entities"]
