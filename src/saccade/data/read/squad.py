"""Question answering data in SQuAD's format: nested articles, and answers with or without their start positions.

An answer is (start, text): its first character in the context, and its words. An empty list of answers means that the question
is unanswerable. For answers without a position, the first occurrence in the context is taken.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from saccade.data.read.base import Record
from saccade.data.read.open_text import SourceFile
from saccade.errors import DataError

START_COLUMNS = ("answer_start", "start", "answer_starts", "starts")  # columns of positions, beside one of answer texts
FORMAT_HINT = "write SQuAD's paragraphs as {context, qas: [{question, answers: [{text, answer_start}]}]}"


class ErrorLocation(Protocol):
    """The location of a value, for error messages."""

    def error(self, problem: str, value: object, hint: str) -> DataError: ...


def read_questions(source: SourceFile, article: Record | DataError) -> Iterator[Record | DataError]:
    """The questions of an article, paragraph by paragraph; SQuAD 2.0's plausible answers are ignored."""
    if isinstance(article, DataError):
        yield article
        return
    title = article.fields.get("title")

    def make_error(problem: str, value: object, hint: str) -> DataError:
        return DataError(problem, file=source.path, line=article.line, column="paragraphs", value=value, hint=hint)

    try:
        for paragraph in article.fields["paragraphs"]:
            for qa in paragraph["qas"]:
                fields = {"context": paragraph["context"], "question": qa["question"]}
                fields |= {key: qa[key] for key in ("id", "answers") if key in qa}
                if not qa.get("is_impossible"):  # a question without answers is unlabeled
                    yield Record(article.line, fields)
                elif fields.get("answers"):
                    problem = f"a question{_format_id(fields)} is marked as impossible but has an answer"
                    yield make_error(problem, fields["question"], "set is_impossible to false, or remove the answers")
                else:
                    yield Record(article.line, fields | {"answers": []})
    except (KeyError, TypeError, AttributeError) as error:
        yield make_error(f"not a SQuAD article ({type(error).__name__} {error})", title, FORMAT_HINT)


def parse_answers(value: Any, location: ErrorLocation) -> list[tuple[int | None, str]]:
    """The (start, text) of each answer, with a start of None where none is given; empty for an unanswerable question."""
    if isinstance(value, str) and value.strip().startswith(("{", "[")):  # a table cell may contain JSON
        value = _parse_json(value)
    if value is None or isinstance(value, str):
        return [(None, value.strip())] if value and value.strip() else []
    if isinstance(value, Mapping):
        value = _transpose_answers(value, location)
    if not isinstance(value, list):
        raise location.error("a list of answers is needed", value, 'write [{"text": ..., "answer_start": ...}]')
    pairs = [(None, answer.strip()) if isinstance(answer, str) else _parse_answer(answer, location) for answer in value]
    return [(start, text) for start, text in pairs if text]


def locate_answers(
    answers: Sequence[tuple[int | None, str]], context: str, fields: Mapping[str, Any], location: ErrorLocation
) -> list[tuple[int, str]]:
    """The (start, text) of each answer in the context; raises DataError for an answer that is not in the context."""
    beside = next((fields[name] for name in START_COLUMNS if name in fields), None)
    out: list[tuple[int, str]] = []
    for i, (start, text) in enumerate(answers):
        if start is None:
            start = _parse_start(beside[i] if isinstance(beside, list) and i < len(beside) else beside, location)
        if start is None:
            start = context.find(text)
            if start < 0:
                raise location.error(
                    f"the answer{_format_id(fields)} does not occur in the context", text, _suggest_hint(context, text)
                )
        if start < 0 or context[start : start + len(text)] != text:
            actual = context[max(start, 0) :][:20]
            what = f"the answer{_format_id(fields)} is not at character {start}, where the context has {actual!r}"
            raise location.error(what, text, _suggest_hint(context, text))
        out.append((start, text))
    return out


def _parse_json(value: str) -> Any:
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value  # plain text that begins with a bracket


def _transpose_answers(value: Mapping[str, Any], location: ErrorLocation) -> list[dict[str, Any]]:
    """Answers as Hugging Face datasets stores them, a list of texts and a list of starts, or one of each."""
    texts, starts = value.get("text"), value.get("answer_start", value.get("start"))
    if isinstance(texts, str):
        texts, starts = [texts], [starts]
    if not isinstance(texts, list) or not isinstance(starts, list) or len(texts) != len(starts):
        raise location.error(
            "the numbers of texts and starts differ", value, "write {text: [...], answer_start: [...]}"
        )
    return [{"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)]


def _parse_answer(answer: Any, location: ErrorLocation) -> tuple[int, str]:
    start = answer.get("answer_start", answer.get("start")) if isinstance(answer, Mapping) else None
    if not isinstance(start, int) or isinstance(start, bool) or not isinstance(answer.get("text"), str):
        raise location.error("an answer needs a text and a start", answer, 'write {"text": ..., "answer_start": 17}')
    return start, answer["text"]


def _parse_start(value: Any, location: ErrorLocation) -> int | None:
    """The start of an answer from a separate column; None for an empty cell."""
    if value is None or not str(value).strip():
        return None
    try:
        start = float(value)
        if start.is_integer():
            return int(start)
    except (ValueError, TypeError):
        pass
    hint = "write the index of the character, or remove the column of starts"
    raise location.error("the start of the answer is not an integer", value, hint)


def _format_id(fields: Mapping[str, Any]) -> str:
    return f" (id {fields['id']})" if fields.get("id") is not None else ""


def _suggest_hint(context: str, text: str) -> str:
    start, similar = context.find(text), context.lower().find(text.lower())
    if start >= 0:
        return f"set the start to {start}"
    if similar >= 0 and len(context.lower()) == len(context):
        return f"write it as in the context, {context[similar : similar + len(text)]!r} at character {similar}"
    return "correct or remove the answer"
