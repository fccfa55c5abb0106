"""One record of a person's data, and what a task asks of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from saccade.errors import DataError


@dataclass(frozen=True)
class Role:
    """One field that a task needs, how its values are read, and the column names by which it is known.

    The kinds: `text`, `texts` (one, or a list of several), `line` (a line of running text, its newline kept), `label`,
    `labels` (several, or none), `number`, `numbers`, `words` and `tags` (equally many), `image` (a path or an array of
    pixels), `answers` (places in a text).
    """

    name: str
    kind: str = "text"
    known: tuple[str, ...] = ()
    needed: bool = True  # otherwise a record without a value is an example without this role
    shared: bool = False  # its column, which has to be named, may be another role's too
    lists: str = ""  # what a list of texts becomes: "joined" to one text, or "kept" as several; it is refused if empty


@dataclass(frozen=True)
class Example:
    """One record: its values by role, and where it stands; `column` only where a line is read in several stretches."""

    values: Mapping[str, Any]
    file: str = ""
    line: int = 0
    column: int = 0  # the place in its line of the first character, from 1; 0: the line as a whole

    @property
    def place(self) -> str:
        """Where in its file it begins, for a person.

        >>> Example({}, "a.txt", 7).place, Example({}, "a.txt", 1, 65537).place
        ('line 7', 'line 1, character 65,537')
        """
        return f"line {self.line:,}" + (f", character {self.column:,}" if self.column else "")

    def __getitem__(self, role: str) -> Any:
        return self.values[role]

    def __contains__(self, role: str) -> bool:
        return role in self.values


def several(value: str | Sequence[str]) -> list[str]:
    """One text, or several that say the same, as a list.

    >>> several("a dog"), several(["a dog", "a pup"])
    (['a dog'], ['a dog', 'a pup'])
    """
    return [value] if isinstance(value, str) else list(value)


@dataclass
class Table:
    """All records of one split, what was said while reading them, the rejects, and a fingerprint of the bytes read."""

    examples: Sequence[Example]
    said: list[str] = field(default_factory=list)
    bad: list[DataError] = field(default_factory=list)
    digest: str = ""


TEXT = Role(
    "text",
    "text",
    (
        "text",
        "sentence",
        "review",
        "content",
        "message",
        "body",
        "tweet",
        "comment",
        "document",
        "description",
        "title",
    ),
)
LINE = Role("text", "line", (*TEXT.known, "smiles", "sequence"))
LABEL = Role(
    "label",
    "label",
    (
        "label",
        "labels",
        "class",
        "category",
        "sentiment",
        "target",
        "stars",
        "rating",
        "topic",
        "polarity",
        "gold",
        "y",
    ),
)
LABELS = Role("labels", "labels", ("labels", "tags", "topics", "categories", "genres", *LABEL.known))
SOURCE = Role("source", "text", ("source", "src", "input", "en", "eng", "english", "original", "article", "document"))
TARGET = Role(
    "target",
    "text",
    (
        "target",
        "tgt",
        "output",
        "translation",
        "de",
        "deu",
        "german",
        "fr",
        "fra",
        "french",
        "es",
        "spanish",
        "summary",
    ),
)
ARTICLE = Role(
    "source",
    "text",
    ("article", "document", "dialogue", "report", "story", "src", "input", "text", "content", "body"),
    lists="joined",
)
SUMMARY = Role(
    "target",
    "text",
    ("summary", "highlights", "abstract", "headline", "tldr", "tgt", "output", "title"),
    lists="kept",
)
WORDS = Role("words", "words", ("words", "tokens", "word", "token", "form"))
TAGS = Role("tags", "tags", ("tags", "ner_tags", "tag", "ner", "label", "labels", "upos", "pos_tags", "pos"))
IMAGE = Role("image", "image", ("image", "file_name", "filename", "path", "file", "img", "picture"))
CAPTION = Role("caption", "texts", ("caption", "captions", "text", "sentence", "sentences", "description", "prompt"))
X = Role("x", "numbers", ("x", "features", "inputs"))
Y = Role("y", "number", ("y", "target", "value", "score", "output", "price", "label"))
CONTEXT = Role("context", "text", ("context", "passage", "paragraph"))
QUESTION = Role("question", "text", ("question", "query"))
ANSWERS = Role("answers", "answers", ("answers", "answer"))
FIRST = Role(
    "first",
    "text",
    ("sentence1", "premise", "question1", "text_a", "sentence_a", "#1_string", "text1", "string1", "sent1", "s1"),
)
SECOND = Role(
    "second",
    "text",
    ("sentence2", "hypothesis", "question2", "text_b", "sentence_b", "#2_string", "text2", "string2", "sent2", "s2"),
)
GRADES = ("score", "similarity", "similarity_score", "relatedness_score", "relatedness", "grade", "rating")
JUDGEMENTS = (
    "gold_label",
    "entailment_judgment",
    "entailment_label",
    "judgment",
    "relation",
    "is_duplicate",
    "quality",
)
JUDGED = Role("label", "label", (*LABEL.known, *JUDGEMENTS, *GRADES))  # of two texts: what they are to each other
GRADED = Role("label", "number", (*GRADES, *LABEL.known, *JUDGEMENTS))  # the same as a number: how near they are
GRADE = Role(
    "score", "number", (*GRADES, "stars", "mark", "price", "value", *LABEL.known)
)  # of one text: how good it says

ROLES = {  # what the tasks ask for; a role of the same name may be read in two ways, so the keys are our own
    "text": TEXT,
    "line": LINE,
    "label": LABEL,
    "labels": LABELS,
    "source": SOURCE,
    "target": TARGET,
    "article": ARTICLE,
    "summary": SUMMARY,
    "words": WORDS,
    "tags": TAGS,
    "image": IMAGE,
    "caption": CAPTION,
    "x": X,
    "y": Y,
    "context": CONTEXT,
    "question": QUESTION,
    "answers": ANSWERS,
    "first": FIRST,
    "second": SECOND,
    "judged": JUDGED,
    "graded": GRADED,
    "grade": GRADE,
}
