"""Data and harm statements: what only people know about a model, such as where its data come from and whom it may harm."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from saccade.errors import ModelError
from saccade.models.io.model_dir import read_toml
from saccade.suggest import suggest

STATEMENTS_FILE = "statements.toml"
NOT_STATED = "not stated"
AnswerValue = str | list[str] | float


@dataclass(frozen=True)
class Question:
    """One entry of statements.toml: its table and key, the question, an example answer, and whether it is required."""

    table: str
    name: str
    title: str
    text: str
    example: str
    is_required: bool = False
    empty_value: AnswerValue = ""


QUESTIONS = (
    Question("model", "name", "Name", "What is the model called?", "Film reviews, small"),
    Question("model", "provider", "Provider", "Who is responsible, and how can they be reached?", "A. Person, a@b.org"),
    Question("model", "license", "License of the model", "Its license, as the hub's identifier.", "apache-2.0"),
    Question(
        "model",
        "languages",
        "Languages",
        "Languages of its input and output, as ISO 639 codes.",
        '["en", "de"]',
        empty_value=[],
    ),
    Question(
        "model", "intended_use", "Intended use", "What is it for, and who should use it?", "Sorting a shop's reviews."
    ),
    Question(
        "model", "out_of_scope", "Out of scope", "What should it not be used for?", "Judging the authors of texts."
    ),
    Question(
        "model", "example", "Example text", "For which text should the card show an attention map?", "A lovely film."
    ),
    Question(
        "data",
        "language_variety",
        "Language variety",
        "Which languages, dialects and registers are the data in?",
        "Informal US English of film fans; few dialect words.",
        True,
    ),
    Question(
        "data",
        "source",
        "Source and provenance",
        "Where do the data come from, and how did you obtain them?",
        "Reviews from site X, downloaded with its consent.",
        True,
    ),
    Question(
        "data",
        "speakers",
        "Speakers and annotators",
        "Who wrote the texts, and who labeled them: age, gender, origin, pay, if known?",
        "Mostly men of 18 to 35 from the US; labels are the authors' own star ratings.",
        True,
    ),
    Question(
        "data",
        "selection",
        "Selection",
        "What was included, what was excluded, and by which rule?",
        "Reviews of 20 to 400 words; those with 3 of 5 stars excluded.",
        True,
    ),
    Question(
        "data",
        "known_gaps",
        "Known gaps",
        "Who and what is missing or rare, as far as you know?",
        "No reviews by children; hardly any of films in other languages than English.",
        True,
    ),
    Question(
        "data",
        "data_types",
        "Types of data",
        "Public datasets, web, user data, licensed, synthetic?",
        "A public dataset.",
    ),
    Question("data", "period", "Period of collection", "When were the data written or collected?", "2010 to 2012"),
    Question("data", "license", "License of the data", "Under which terms may they be used?", "cc-by-4.0"),
    Question(
        "harm",
        "behavior",
        "Harmful behavior",
        "What harmful behavior may the model show?",
        "It rates reviews that name women actors lower.",
        True,
    ),
    Question("harm", "affected_people", "Affected people", "Who would be harmed?", "Women who act or direct.", True),
    Question(
        "harm",
        "how_it_harms",
        "Type of harm",
        "How would it harm them?",
        "Their films are shown to fewer people.",
        True,
    ),
    Question(
        "harm",
        "mitigations",
        "Mitigations",
        "What did you do against it, and what remains?",
        "Names were masked.",
    ),
    Question(
        "computing",
        "watts",
        "Power of a busy core, in watts",
        "Power of a busy core in watts, for the energy estimate, if you know it.",
        "7.5",
        empty_value=0.0,
    ),
)
TABLE_DESCRIPTIONS = {
    "model": "Model.",
    "data": "Data statement.",
    "harm": "Harm statement.",
    "computing": "Compute.",
}
STATEMENTS = {"data": "data statement", "harm": "harm statement"}


@dataclass(frozen=True)
class Statements:
    """The answers by table and name; missing ones are "not stated"."""

    answers: Mapping[str, Mapping[str, AnswerValue]] = field(default_factory=dict)
    path: Path | None = None

    def get(self, table: str, name: str) -> AnswerValue | None:
        """The answer to a question; None if it is missing, empty or "not stated"."""
        answer = self.answers.get(table, {}).get(name)
        is_blank = answer in ("", [], 0.0) or (isinstance(answer, str) and answer.strip().lower() in ("", NOT_STATED))
        return None if answer is None or is_blank else answer

    def format_answer(self, table: str, name: str) -> str:
        """The answer to a question as text, or "not stated"."""
        answer = self.get(table, name)
        return ", ".join(answer) if isinstance(answer, list) else NOT_STATED if answer is None else str(answer)

    def missing_answers(self, table: str) -> list[str]:
        """The names of the required answers of a table that are missing."""
        required = (question for question in QUESTIONS if question.table == table and question.is_required)
        return [question.name for question in required if self.get(table, question.name) is None]

    @property
    def is_complete(self) -> bool:
        return not any(self.missing_answers(table) for table in STATEMENTS)


def make_template() -> str:
    """The statements.toml to fill in: each empty answer with its question and an example in a comment."""
    lines = [
        "# What only a person can say about this model. All that the run knows is on its card already: task, data, sizes,",
        "# scores, settings, hardware and audits. A blank is 'not stated' on the card; answers marked REQUIRED are needed for an",
        "# export.",
        "# saccade card RUN writes the card anew; saccade card RUN --check lists what is still missing.",
    ]
    for table, description in TABLE_DESCRIPTIONS.items():
        lines += ["", f"[{table}]  # {description}"]
        for question in (one for one in QUESTIONS if one.table == table):
            empty = {str: '""', list: "[]", float: "0.0"}[type(question.empty_value)]
            required = "REQUIRED. " if question.is_required else ""
            lines += [f"# {required}{question.text}  For example: {question.example}", f"{question.name} = {empty}"]
    return "\n".join(lines) + "\n"


def write_template(directory: Path, *, force: bool = False) -> Path:
    """Write statements.toml with the questions; an existing file is overwritten only with `force`."""
    path = directory / STATEMENTS_FILE
    if path.exists() and not force:
        raise ModelError(
            f"{path} already exists; fill it in and write the card with saccade card {directory}, or start over with --force "
            "(in Python, force=True)."
        )
    path.write_text(make_template(), encoding="utf-8")
    return path


def read_statements(directory: Path) -> Statements:
    """Read the statements.toml of a directory; empty statements if there is none."""
    path = directory / STATEMENTS_FILE
    if not path.is_file():
        return Statements()
    try:
        raw = read_toml(path)
    except ValueError as error:
        raise ModelError(
            f"{path}: is not valid TOML ({error}); correct it, or remove it and run saccade card RUN --init."
        ) from error
    for table, answers in raw.items():
        if table not in TABLE_DESCRIPTIONS or not isinstance(answers, dict):
            raise ModelError(f"{path}: there is no table [{table}]; {suggest(table, list(TABLE_DESCRIPTIONS))}")
        for name, value in answers.items():
            _check_answer(path, table, name, value)
    return Statements(raw, path)


def _check_answer(path: Path, table: str, name: str, value: Any) -> None:
    known = {question.name: question for question in QUESTIONS if question.table == table}
    if name not in known:
        raise ModelError(f"{path}: [{table}] has no question {name!r}; {suggest(name, list(known))}")
    empty = known[name].empty_value
    is_valid = (
        isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
        if isinstance(empty, float)
        else isinstance(value, list) and all(isinstance(item, str) for item in value)
        if isinstance(empty, list)
        else isinstance(value, str)
    )
    if not is_valid:
        raise ModelError(f"{path}: {table}.{name} is {value!r}; write it as in the example, {known[name].example}.")
