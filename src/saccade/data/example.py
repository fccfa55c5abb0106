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
    column_names: tuple[str, ...] = ()
    required: bool = True  # otherwise a record without a value is an example without this role
    shares_column: bool = False  # its column, which has to be named, may be another role's too
    list_policy: str = (
        ""  # what a list of texts becomes: "join" to one text, or "references" to be several; it is refused if empty
    )


@dataclass(frozen=True)
class Example:
    """One record: its values by role, and where it stands; `column` only where a line is read in several stretches."""

    values: Mapping[str, Any]
    file: str = ""
    line: int = 0
    character: int = 0  # the place in its line of the first character, from 1; 0: the line as a whole

    @property
    def location(self) -> str:
        """Where in its file it begins, for a person.

        >>> Example({}, "a.txt", 7).location, Example({}, "a.txt", 1, 65537).location
        ('line 7', 'line 1, character 65,537')
        """
        return f"line {self.line:,}" + (f", character {self.character:,}" if self.character else "")

    def __getitem__(self, role: str) -> Any:
        return self.values[role]

    def __contains__(self, role: str) -> bool:
        return role in self.values


def as_list(value: str | Sequence[str]) -> list[str]:
    """One text, or several that say the same, as a list.

    >>> as_list("a dog"), as_list(["a dog", "a pup"])
    (['a dog'], ['a dog', 'a pup'])
    """
    return [value] if isinstance(value, str) else list(value)


@dataclass
class Records:
    """All records of one split, what was said while reading them, the rejects, and a fingerprint of the bytes read."""

    examples: Sequence[Example]
    notes: list[str] = field(default_factory=list)
    rejects: list[DataError] = field(default_factory=list)
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
TEXT_LINE = Role("text", "line", (*TEXT.column_names, "smiles", "sequence"))
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
LABELS = Role("labels", "labels", ("labels", "tags", "topics", "categories", "genres", *LABEL.column_names))
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
    list_policy="join",
)
SUMMARY = Role(
    "target",
    "text",
    ("summary", "highlights", "abstract", "headline", "tldr", "tgt", "output", "title"),
    list_policy="references",
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
PAIR_SCORE_COLUMNS = ("score", "similarity", "similarity_score", "relatedness_score", "relatedness", "grade", "rating")
PAIR_LABEL_COLUMNS = (
    "gold_label",
    "entailment_judgment",
    "entailment_label",
    "judgment",
    "relation",
    "is_duplicate",
    "quality",
)
PAIR_LABEL = Role(
    "label", "label", (*LABEL.column_names, *PAIR_LABEL_COLUMNS, *PAIR_SCORE_COLUMNS)
)  # of two texts: what they are to each other
PAIR_SCORE = Role(
    "label", "number", (*PAIR_SCORE_COLUMNS, *LABEL.column_names, *PAIR_LABEL_COLUMNS)
)  # the same as a number: how near they are
GRADE = Role(
    "score", "number", (*PAIR_SCORE_COLUMNS, "stars", "mark", "price", "value", *LABEL.column_names)
)  # of one text: how good it says

ROLES = {  # what the tasks ask for; a role of the same name may be read in two ways, so the keys are our own
    "text": TEXT,
    "line": TEXT_LINE,
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
    "pair_label": PAIR_LABEL,
    "pair_score": PAIR_SCORE,
    "grade": GRADE,
}
