"""Examples, the records of a dataset, and roles, the fields of a record that a task reads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from saccade.errors import DataError


@dataclass(frozen=True)
class Role:
    """A field that a task needs, how its values are parsed, and the column names under which it is recognized.

    The kinds: `text`, `texts` (one text or a list of texts), `line` (a line of running text, including its newline), `label`,
    `labels` (zero or more), `number`, `numbers`, `words` and `tags` (of equal length), `image` (a path or an array of pixels),
    `audio` (a path or an array of samples), `answers` (spans of a text).
    """

    name: str
    kind: str = "text"
    column_names: tuple[str, ...] = ()
    required: bool = True  # if False, a record without a value becomes an example without this role
    shares_column: bool = False  # the column may also be that of another role; it has to be named
    # how a list of texts is read: "join" makes one text of it, "references" keeps several; "" refuses lists
    list_policy: str = ""


@dataclass(frozen=True)
class Example:
    """One record: its values by role, and its location; `character` is set only where a line is read in several chunks.

    `fields` are the values of all columns of its file as they were read, if the reader was asked to keep them (`keep_fields`).
    """

    values: Mapping[str, Any]
    file: str = ""
    line: int = 0
    character: int = 0  # position of the first character in its line, counted from 1; 0 is the line as a whole
    fields: Mapping[str, Any] | None = field(default=None, repr=False, compare=False)

    @property
    def location(self) -> str:
        """Where the record begins in its file, for messages.

        >>> Example({}, "a.txt", 7).location, Example({}, "a.txt", 1, 65537).location
        ('line 7', 'line 1, character 65,537')
        """
        return f"line {self.line:,}" + (f", character {self.character:,}" if self.character else "")

    def __getitem__(self, role: str) -> Any:
        return self.values[role]

    def __contains__(self, role: str) -> bool:
        return role in self.values


def as_list(value: str | Sequence[str]) -> list[str]:
    """A text, or several references with the same meaning, as a list.

    >>> as_list("a dog"), as_list(["a dog", "a pup"])
    (['a dog'], ['a dog', 'a pup'])
    """
    return [value] if isinstance(value, str) else list(value)


@dataclass
class Records:
    """All records of one split, the notes and the rejected records of reading them, and a digest of the bytes."""

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
AUDIO = Role(
    "audio",
    "audio",
    (
        "audio",
        "audio_filepath",
        "audio_file",
        "audio_path",
        "recording",
        "wav",
        "path",
        "file_name",
        "filename",
        "file",
    ),
)
TRANSCRIPT = Role("text", "text", ("text", "sentence", "transcript", "transcription", "normalized_text", "words"))
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
# the class of a sentence pair, such as entailment
PAIR_LABEL = Role("label", "label", (*LABEL.column_names, *PAIR_LABEL_COLUMNS, *PAIR_SCORE_COLUMNS))
# the score of a sentence pair, such as similarity
PAIR_SCORE = Role("label", "number", (*PAIR_SCORE_COLUMNS, *LABEL.column_names, *PAIR_LABEL_COLUMNS))
# the score of a single text, such as stars
GRADE = Role("score", "number", (*PAIR_SCORE_COLUMNS, "stars", "mark", "price", "value", *LABEL.column_names))

ROLES = {  # the roles of all tasks; two roles of one name may be parsed differently, so the keys are names of their own
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
    "audio": AUDIO,
    "transcript": TRANSCRIPT,
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
