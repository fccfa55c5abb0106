"""The model card: statements, blanks that stay "not stated", front matter for the hub, and self-contained pages."""

import base64
import json
import re
import tomllib
from pathlib import Path

import pytest
import torch
from huggingface_hub import ModelCard
from huggingface_hub.repocard import metadata_load
from PIL import Image
from safetensors.torch import load_file

from saccade.audit.card import build_card, is_incomplete
from saccade.audit.card_figure import can_read_sentence, example_text
from saccade.audit.card_format import escape_markdown, render_front_matter
from saccade.audit.run_records import find_task, open_records
from saccade.audit.statements import NOT_STATED, QUESTIONS, STATEMENTS, Statements, make_template, read_statements
from saccade.cli import main
from saccade.models.build import new
from saccade.models.families import bert
from saccade.models.load import save
from saccade.models.save import UNAUDITED_NOTICE
from saccade.tasks.registry import TASKS

TINY = "--task.tokenizer characters --model.width 8 --model.layers 1 --model.heads 2 --model.ffn-width 16 --train.max-steps 2"


def fill(run: Path, *leave: str) -> None:
    """Answer all questions but some; numbers and lists as in the examples."""
    text = (run / "statements.toml").read_text()
    for question in QUESTIONS:
        if question.name not in leave and isinstance(question.empty_value, str):
            text = text.replace(f'\n{question.name} = ""', f'\n{question.name} = "All of {question.name}."')
    (run / "statements.toml").write_text(text.replace("languages = []", 'languages = ["en"]'))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    home = tmp_path_factory.mktemp("card")
    rows = "".join(f"{'good' if i % 2 else 'bad'} thing {i}\t{'pos' if i % 2 else 'neg'}\n" for i in range(60))
    (home / "things.tsv").write_text("text\tlabel\n" + rows)
    out = home / "run"
    assert main(["train", "label", "--data", str(home / "things.tsv"), "--out", str(out), *TINY.split()]) == 0
    return out


def test_the_questions_are_toml_with_a_blank_for_each():
    raw = tomllib.loads(make_template())
    assert {(table, name) for table, answers in raw.items() for name in answers} == {
        (q.table, q.name) for q in QUESTIONS
    }
    empty = Statements(raw)
    assert all(empty.format_answer(question.table, question.name) == NOT_STATED for question in QUESTIONS)
    assert empty.missing_answers("data") == ["language_variety", "source", "speakers", "selection", "known_gaps"]
    assert empty.missing_answers("harm") == ["behavior", "affected_people", "how_it_harms"]
    assert set(STATEMENTS) == {"data", "harm"}
    assert all(question.example in make_template() for question in QUESTIONS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[data]\nsorce = "x"\n', "did you mean 'source'"),
        ("[dada]\n", "did you mean 'data'"),
        ("[data]\nsource = 3\n", "write it as in the example"),
        ('[model]\nlanguages = "en"\n', "write it as in the example"),
        ("[data\n", "is not valid TOML"),
    ],
)
def test_a_wrong_answer_is_named(tmp_path, text, message):
    (tmp_path / "statements.toml").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_statements(tmp_path)


def test_empty_answers_are_blanks():
    found = Statements({"data": {"source": "  ", "known_gaps": "Not stated", "language_variety": "English"}})
    assert found.missing_answers("data") == ["source", "speakers", "selection", "known_gaps"]


def test_the_card_of_a_new_run_begins_with_what_is_missing(run):
    text = (run / "model" / "README.md").read_text()
    assert text.split("---\n")[2].startswith("**Not audited, not described.**")
    assert is_incomplete(text)
    assert UNAUDITED_NOTICE == "Not audited, not described."


def test_the_card_is_built_from_the_records(run):
    assert main(["card", str(run)]) == 0
    text = (run / "model" / "README.md").read_text()
    config = tomllib.loads((run / "config.toml").read_text())
    result = json.loads((run / "result.json").read_text())
    assert f"**{UNAUDITED_NOTICE}**" in text
    assert config["run"]["digest"] in text
    assert f"{result['parameters']:,}" in text
    assert "54 train, 6 dev" in text
    assert "lr = 0.001" in text
    assert "an estimate, not a measurement" in text
    for question in QUESTIONS:
        if question.table in ("data", "harm"):
            assert f"**{question.title}:** not stated" in text
    assert "| dev | accuracy |" in text
    assert "No suite has been run" in text


def test_the_front_matter_is_what_the_hub_reads(run):
    main(["card", str(run)])
    path = run / "model" / "README.md"
    card = ModelCard.load(path)
    assert card.data.library_name == "saccade"
    assert card.data.pipeline_tag == "text-classification"
    assert card.data.license is None  # none is stated
    results = {result.metric_type: result for result in card.data.eval_results}
    scores = {score["name"]: score["value"] for score in json.loads((run / "result.json").read_text())["scores"]["dev"]}
    assert {name: result.metric_value for name, result in results.items()} == scores
    assert metadata_load(path)["tags"] == ["saccade", "label"]


def test_any_text_survives_the_front_matter(tmp_path):
    values = {
        "a": 'quote " and \\ and: colon # hash',
        "b": ["- x", "ü 漢字", "null", "yes"],
        "c": 0.25,
        "d": {"e": "x\ny"},
    }
    path = tmp_path / "README.md"
    path.write_text(render_front_matter(values) + "text\n", encoding="utf-8")
    assert metadata_load(path) == values
    path.write_text(render_front_matter({"a": "x\x7fy\u2028z"}) + "text\n", encoding="utf-8")
    assert metadata_load(path) == {"a": "x y z"}


def test_text_stays_text_in_markdown():
    assert escape_markdown("<script>|a_b*\n# c") == "&lt;script&gt;|a\\_b\\* \\# c"


def test_the_page_is_self_contained_and_has_the_same_content(run):
    main(["card", str(run)])
    page = (run / "card.html").read_text()
    assert UNAUDITED_NOTICE in page
    assert "http-equiv" in page
    assert "<script" not in page
    assert page.count("not stated") >= 10


def test_the_card_shows_an_attention_map(run):
    (run / "statements.toml").write_text('[model]\nexample = "good thing | 7"\n')
    try:
        assert main(["card", str(run)]) == 0
        with Image.open(run / "model" / "looks.png") as image:
            assert min(image.size) > 100
            assert len(set(image.convert("L").tobytes())) > 20  # not an empty image
        card = (run / "model" / "README.md").read_text()
        assert "![Attention for: good thing | 7](looks.png)" in card
        page = (run / "card.html").read_text()
        address = re.search(r'<img src="data:image/png;base64,([^"]+)" alt="Attention for: good thing', page)
        assert address is not None
        assert base64.b64decode(address[1]) == (run / "model" / "looks.png").read_bytes()
    finally:
        (run / "statements.toml").unlink()


def test_the_default_example_text_is_in_a_stated_language(run):
    assert example_text(open_records(run)).startswith("The weather is fine today")
    (run / "statements.toml").write_text('[model]\nlanguages = ["tlh", "fr"]\n')
    try:
        assert example_text(open_records(run)).startswith("Il fait beau")
    finally:
        (run / "statements.toml").unlink()


@pytest.mark.parametrize("kind", TASKS, ids=lambda kind: kind.name)
def test_only_models_that_take_text_get_an_example_text(kind):
    assert can_read_sentence(kind()) == (kind.name not in ("caption", "paint", "regress", "transcribe"))


@pytest.fixture(scope="module")
def begun(run):
    """A run that was initialized from another one, with more dropout."""
    out, data = run.parent / "begun", str(run.parent / "things.tsv")
    flags = ["--model.dropout", "0.3", "--train.max-steps", "2", "--train.device", "cpu"]
    assert main(["train", "label", "--data", data, "--model", str(run), "--out", str(out), *flags]) == 0
    return out


@pytest.mark.parametrize("kind", ["run", "begun"])
def test_the_settings_of_a_card_train_the_same_model_again(kind, request, tmp_path):
    run = request.getfixturevalue(kind)
    main(["card", str(run)])
    blocks = (run / "model" / "README.md").read_text().split("```\n")
    recipe = tmp_path / "run.toml"
    recipe.write_text(next(block for block in blocks if block.startswith("[run]")))
    assert main(["train", str(recipe), "--out", str(tmp_path / "again")]) == 0
    one, other = (path.joinpath("model", "model.safetensors").read_bytes() for path in (run, tmp_path / "again"))
    assert one == other
    assert (run / "result.json").read_bytes() == (tmp_path / "again" / "result.json").read_bytes()


def test_stated_watts_are_used(run):
    (run / "statements.toml").write_text("[computing]\nwatts = 7.5\n")
    try:
        text = build_card(open_records(run), find_task(run))
        assert "7.5 watts per busy core (as stated by the provider)" in text
        seconds = open_records(run).cpu_seconds
        assert seconds
        assert f"{seconds * 7.5 / 3.6e6:.3g} kWh" in text
    finally:
        (run / "statements.toml").unlink()


def test_cpu_time_is_the_sum_of_the_steps(run):
    rows = [json.loads(line) for line in (run / "speed.jsonl").read_text().splitlines()]
    assert len(rows) == 2
    assert open_records(run).cpu_seconds == pytest.approx(sum(row["cpu_seconds"] for row in rows))


def test_init_never_overwrites(run, capsys):
    try:
        assert main(["card", str(run), "--init"]) == 0
        assert main(["card", str(run), "--init"]) == 4
        assert "already exists; fill it in" in capsys.readouterr().err
        assert main(["card", str(run), "--init", "--check"]) == 2
    finally:
        (run / "statements.toml").unlink()


def test_check_lists_all_that_is_missing(run, capsys):
    assert main(["card", str(run), "--check", "--json"]) == 4
    result = json.loads(capsys.readouterr().out)
    assert not result["complete"]
    assert len(result["missing"]) >= 4  # two statements, two suites
    assert main(["card", str(run / "nowhere"), "--check"]) == 4


def test_a_base_model_without_a_head_has_a_card(tmp_path):
    config = bert.Config(vocab=50, width=8, layers=1, heads=2, ffn_width=8, max_positions=8)
    torch.manual_seed(0)
    save(new("bert", config), tmp_path / "body")
    assert main(["card", str(tmp_path / "body")]) == 0
    text = (tmp_path / "body" / "README.md").read_text()
    assert "a base model without a head" in text
    count = sum(tensor.numel() for tensor in load_file(tmp_path / "body" / "model.safetensors").values())
    assert f"{count:,} values in the weight files" in text
    assert "How it was trained is not stated" in text
    assert ModelCard.load(tmp_path / "body" / "README.md").data.pipeline_tag == "feature-extraction"
