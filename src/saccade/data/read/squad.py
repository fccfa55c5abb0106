"""Questions about a text, as SQuAD and its relatives write them: nested articles, and answers with or without their places.

An answer is (start, text): the character of the context at which it starts, and what stands there. A question without answers
has none in its text. Where a file gives only the words, the first place where they stand is taken.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from saccade.data.read.base import Record
from saccade.data.read.open_text import SourceFile
from saccade.errors import DataError

START_COLUMNS = ("answer_start", "start", "answer_starts", "starts")  # columns beside one that has only the words
FORMAT_HINT = "write SQuAD's paragraphs as {context, qas: [{question, answers: [{text, answer_start}]}]}"


class ErrorLocation(Protocol):
    """Where a value stands, so that an error can say so."""

    def error(self, problem: str, value: object, hint: str) -> DataError: ...


def read_questions(source: SourceFile, article: Record | DataError) -> Iterator[Record | DataError]:
    """Articles have paragraphs, paragraphs have questions; what is merely plausible is no answer."""
    if isinstance(article, DataError):
        yield article
        return
    title = article.fields.get("title")

    def bad(what: str, value: object, hint: str) -> DataError:
        return DataError(what, file=source.path, line=article.line, column="paragraphs", value=value, hint=hint)

    try:
        for paragraph in article.fields["paragraphs"]:
            for asked in paragraph["qas"]:
                given = {"context": paragraph["context"], "question": asked["question"]}
                given |= {key: asked[key] for key in ("id", "answers") if key in asked}
                if not asked.get("is_impossible"):  # without answers it is a question whose answer nobody knows yet
                    yield Record(article.line, given)
                elif given.get("answers"):
                    what = f"a question{_format_id(given)} is said to be impossible and has an answer"
                    yield bad(what, given["question"], "set is_impossible to false, or remove the answers")
                else:
                    yield Record(article.line, given | {"answers": []})
    except (KeyError, TypeError, AttributeError) as error:
        yield bad(f"not a SQuAD article ({type(error).__name__} {error})", title, FORMAT_HINT)


def parse_answers(value: Any, location: ErrorLocation) -> list[tuple[int | None, str]]:
    """Where each answer starts, or None where that is not said, and its text; none if the question has no answer."""
    if isinstance(value, str) and value.strip().startswith(("{", "[")):  # a cell of a table may hold JSON
        value = _parse_json(value)
    if value is None or isinstance(value, str):
        return [(None, value.strip())] if value and value.strip() else []
    if isinstance(value, Mapping):
        value = _transpose_answers(value, location)
    if not isinstance(value, list):
        raise location.error("a list of answers is needed", value, 'write [{"text": ..., "answer_start": ...}]')
    found = [(None, answer.strip()) if isinstance(answer, str) else _parse_answer(answer, location) for answer in value]
    return [(start, text) for start, text in found if text]


def locate_answers(
    answers: Sequence[tuple[int | None, str]], context: str, fields: Mapping[str, Any], location: ErrorLocation
) -> list[tuple[int, str]]:
    """The same with each answer where it stands in the context; one that is not there is refused."""
    beside = next((fields[name] for name in START_COLUMNS if name in fields), None)
    out: list[tuple[int, str]] = []
    for i, (start, text) in enumerate(answers):
        if start is None:
            start = _parse_start(beside[i] if isinstance(beside, list) and i < len(beside) else beside, location)
        if start is None:
            start = context.find(text)
            if start < 0:
                raise location.error(
                    f"the answer{_format_id(fields)} does not stand in the context", text, _suggest_hint(context, text)
                )
        if start < 0 or context[start : start + len(text)] != text:
            there = context[max(start, 0) :][:20]
            what = f"the answer{_format_id(fields)} does not stand at character {start}, where {there!r} stands"
            raise location.error(what, text, _suggest_hint(context, text))
        out.append((start, text))
    return out


def _parse_json(value: str) -> Any:
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value  # words in brackets


def _transpose_answers(value: Mapping[str, Any], location: ErrorLocation) -> list[dict[str, Any]]:
    """As datasets writes it, a list of texts and a list of starts; or one of each."""
    texts, starts = value.get("text"), value.get("answer_start", value.get("start"))
    if isinstance(texts, str):
        texts, starts = [texts], [starts]
    if not isinstance(texts, list) or not isinstance(starts, list) or len(texts) != len(starts):
        raise location.error("as many texts as starts are needed", value, "write {text: [...], answer_start: [...]}")
    return [{"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)]


def _parse_answer(answer: Any, location: ErrorLocation) -> tuple[int, str]:
    start = answer.get("answer_start", answer.get("start")) if isinstance(answer, Mapping) else None
    if not isinstance(start, int) or isinstance(start, bool) or not isinstance(answer.get("text"), str):
        raise location.error("an answer has a text and a start", answer, 'write {"text": ..., "answer_start": 17}')
    return start, answer["text"]


def _parse_start(value: Any, location: ErrorLocation) -> int | None:
    """A start from a column of its own; an empty cell says nothing."""
    if value is None or not str(value).strip():
        return None
    try:
        found = float(value)
        if found.is_integer():
            return int(found)
    except (ValueError, TypeError):
        pass
    hint = "write the number of the character, or leave the column of starts out"
    raise location.error("the start of the answer is no whole number", value, hint)


def _format_id(fields: Mapping[str, Any]) -> str:
    return f" (id {fields['id']})" if fields.get("id") is not None else ""


def _suggest_hint(context: str, text: str) -> str:
    at, near = context.find(text), context.lower().find(text.lower())
    if at >= 0:
        return f"set the start to {at}"
    if near >= 0 and len(context.lower()) == len(context):
        return f"write it as it stands there, {context[near : near + len(text)]!r} at character {near}"
    return "the text does not have this answer; correct or remove it"
