"""What only people know of a model: where its data come from and whom it may harm, asked for in a small TOML file."""

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
    """One blank to fill: where it stands, what is asked, an example of an answer, and whether a statement needs it."""

    table: str
    name: str
    title: str
    text: str
    example: str
    is_required: bool = False
    empty_value: AnswerValue = ""


QUESTIONS = (
    Question("model", "name", "Name", "What is it called?", "Reviews of films, small"),
    Question("model", "provider", "Provider", "Who answers for it, and how can they be reached?", "A. Person, a@b.org"),
    Question("model", "license", "Licence of the model", "Its licence, by the hub's identifier.", "apache-2.0"),
    Question(
        "model", "languages", "Languages", "What it reads and writes, by ISO 639.", '["en", "de"]', empty_value=[]
    ),
    Question(
        "model", "intended_use", "Intended use", "What is it for, and who should use it?", "Sorting a shop's reviews."
    ),
    Question("model", "out_of_scope", "Out of scope", "What should it not be used for?", "Judging people who write."),
    Question(
        "model", "example", "A text of its kind", "On which text shall the card show where it looks?", "A lovely film."
    ),
    Question(
        "data",
        "language_variety",
        "Language variety",
        "Which language, dialect and register are the data in?",
        "Informal US English of film fans; few dialect words.",
        True,
    ),
    Question(
        "data",
        "source",
        "Source and provenance",
        "Where do the data come from, and how did they come to you?",
        "Reviews of site X, downloaded with its consent.",
        True,
    ),
    Question(
        "data",
        "speakers",
        "Speakers and annotators",
        "Who wrote the texts, and who labelled them: age, gender, origin, pay, if known?",
        "Mostly men of 18 to 35 from the US; labels are the writers' own stars.",
        True,
    ),
    Question(
        "data",
        "selection",
        "Selection",
        "What was taken, what was left out, and by which rule?",
        "Reviews of 20 to 400 words; 3 of 5 stars left out.",
        True,
    ),
    Question(
        "data",
        "known_gaps",
        "Known gaps",
        "Who and what is missing or rare, as far as you know?",
        "No reviews by children; hardly any of films not in English.",
        True,
    ),
    Question(
        "data",
        "data_types",
        "Kinds of data",
        "Public sets, web, users' own, licensed, synthetic?",
        "A public data set.",
    ),
    Question("data", "period", "Period of collection", "When were the data written or collected?", "2010 to 2012"),
    Question("data", "license", "Licence of the data", "Under which terms may they be used?", "cc-by-4.0"),
    Question(
        "harm",
        "behavior",
        "Harmful behaviour",
        "What may it do that is harmful?",
        "It rates reviews that name women actors lower.",
        True,
    ),
    Question("harm", "affected_people", "To whom", "Who would be harmed?", "Women who act or direct.", True),
    Question(
        "harm", "how_it_harms", "In what way", "How would it harm them?", "Their films are shown to fewer people.", True
    ),
    Question(
        "harm",
        "mitigations",
        "What was done about it",
        "What did you do against it, and what is left?",
        "Names were masked.",
    ),
    Question(
        "computing",
        "watts",
        "Watts of a busy core",
        "For the estimate of energy, if you know it.",
        "7.5",
        empty_value=0.0,
    ),
)
TABLE_DESCRIPTIONS = {
    "model": "The model.",
    "data": "The data statement: all of the first five are needed before the model is exported.",
    "harm": "The harm statement: what, to whom and in what way are needed before the model is exported.",
    "computing": "The cost.",
}
STATEMENTS = {"data": "data statement", "harm": "harm statement"}


@dataclass(frozen=True)
class Statements:
    """The answers by table and name; what is not there is not stated."""

    answers: Mapping[str, Mapping[str, AnswerValue]] = field(default_factory=dict)
    path: Path | None = None

    def get(self, table: str, name: str) -> AnswerValue | None:
        """An answer; None where there is none."""
        found = self.answers.get(table, {}).get(name)
        blank = found in ("", [], 0.0) or (isinstance(found, str) and found.strip().lower() in ("", NOT_STATED))
        return None if found is None or blank else found

    def format_answer(self, table: str, name: str) -> str:
        """An answer in words, or "not stated"."""
        found = self.get(table, name)
        return ", ".join(found) if isinstance(found, list) else NOT_STATED if found is None else str(found)

    def missing_answers(self, table: str) -> list[str]:
        """The needed answers of a statement that are missing, by name."""
        asked = (question for question in QUESTIONS if question.table == table and question.is_required)
        return [question.name for question in asked if self.get(table, question.name) is None]

    @property
    def is_complete(self) -> bool:
        return not any(self.missing_answers(table) for table in STATEMENTS)


def make_template() -> str:
    """The file to fill in: a comment with the question and an example before each blank."""
    lines = [
        "# What only you can know of this model. A blank is shown as 'not stated' on its card; nothing is made up for it.",
        "# saccade card RUN writes the card; saccade card RUN --check says what is still missing.",
    ]
    for table, head in TABLE_DESCRIPTIONS.items():
        lines += ["", f"[{table}]  # {head}"]
        for question in (one for one in QUESTIONS if one.table == table):
            empty = {str: '""', list: "[]", float: "0.0"}[type(question.empty_value)]
            lines += [f"# {question.text}  For example: {question.example}", f"{question.name} = {empty}"]
    return "\n".join(lines) + "\n"


def write_template(directory: Path) -> Path:
    """Write the file of questions, never over answers."""
    path = directory / STATEMENTS_FILE
    if path.exists():
        raise ModelError(f"{path} is there already; fill it in, or remove it to begin anew.")
    path.write_text(make_template(), encoding="utf-8")
    return path


def read_statements(directory: Path) -> Statements:
    """The answers of a directory; none where nobody was asked."""
    path = directory / STATEMENTS_FILE
    if not path.is_file():
        return Statements()
    try:
        raw = read_toml(path)
    except ValueError as error:
        raise ModelError(f"{path}: is no TOML ({error}); saccade card RUN --init writes a file to fill in.") from error
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
    right = (
        isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
        if isinstance(empty, float)
        else isinstance(value, list) and all(isinstance(one, str) for one in value)
        if isinstance(empty, list)
        else isinstance(value, str)
    )
    if not right:
        raise ModelError(f"{path}: {table}.{name} is {value!r}; write it as in the example, {known[name].example}.")
