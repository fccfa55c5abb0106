"""Only what is allowed: texts that match an expression, JSON that fits a schema, or one of a list of texts.

    generate(model, batch, stop=tokenizer.end, limit=64, rules=[Matching(r"\\d{4}-\\d\\d-\\d\\d", tokenizer)])
    generate(model, batch, stop=tokenizer.end, limit=64, rules=[JsonSchema({"type": "object"}, tokenizer)])
    generate(model, batch, stop=tokenizer.end, limit=64, rules=[Among.texts(["yes", "no"], tokenizer)])

A token is allowed if what stands there and the token begin a text that is allowed, and if that text can still be finished
with the tokens that are left. The stop token is allowed only when the text is whole. So what is written always keeps to the
rule, also when the limit cuts it off; if that is impossible from the outset, it is an error before anything is written.
The text is that of the written tokens alone, without the prompt.
"""

from collections.abc import Collection, Sequence

import numpy as np
from torch import Tensor

from saccade.decoding.completion import Ending
from saccade.decoding.expression import classes, farthest, read, shortest, translate
from saccade.decoding.grammar import Grammar, allow_only, ends_of
from saccade.decoding.json_schema import Schema, json_rule, load_schema, name_schema, string_hints
from saccade.decoding.matcher import grammar_of
from saccade.decoding.rules import Rule, Sofar, known
from saccade.errors import UsageError
from saccade.text.tokenizer import Tokenizer

FAR = np.iinfo(np.int32).max  # more tokens than any continuation has


class Matching(Grammar):
    """Texts that match a regular expression, from the first letter to the last; `expression` says what is read.

    `ends` are the stop tokens, the tokenizer's own if none are given.
    """

    def __init__(self, expression: str, tokenizer: Tokenizer, ends: Collection[int] | None = None):
        self.expression, self._node = expression, read(expression)
        grammar = grammar_of(f"/{translate(self._node)}/")
        reach, letters = farthest(self._node), classes(self._node)
        super().__init__(grammar, f"matches {expression!r}", tokenizer, ends, reach=reach, classes=letters)

    def __repr__(self) -> str:
        return f"Matching({self.expression!r})"

    def first_guess(self) -> Ending | None:
        """The shortest text is known; in tokens of several letters another one may be shorter."""
        return self._vocabulary.spell(shortest(self._node).encode())


class JsonSchema(Grammar):
    """JSON that fits a schema, given as a dictionary or as the path of a file; see `json_schema` for what is refused.

    `ends` are the stop tokens, the tokenizer's own if none are given.
    """

    def __init__(self, schema: Schema, tokenizer: Tokenizer, ends: Collection[int] | None = None):
        self.name = name_schema(schema)
        loaded = load_schema(schema)
        hints = string_hints(loaded)
        super().__init__(grammar_of(json_rule(loaded)), f"fits {self.name}", tokenizer, ends, hints=hints)

    def __repr__(self) -> str:
        return f"JsonSchema({self.name})"


class Among(Rule):
    """One of these rows of tokens, to its end.

    >>> import torch
    >>> rule = Among([[1, 2], [1, 3, 3], [4]], ends=[0])
    >>> rule(torch.zeros(1, 5), Sofar([[7]], [[1]], limit=3))
    tensor([[-inf, -inf, 0., 0., -inf]])
    """

    def __init__(self, rows: Sequence[Sequence[int]], ends: Collection[int]):
        if not rows:
            raise UsageError(
                "The list of allowed continuations is empty, so nothing could be written; give at least one."
            )
        if not ends:
            raise UsageError("A list of allowed continuations needs the tokens that end a text; got none.")
        self.ends = tuple(ends)
        self.tree: dict[
            tuple[int, ...], dict[int, int]
        ] = {}  # what stands there: which tokens follow, and how many more
        self.whole = {tuple(row) for row in rows}
        for row in self.whole:
            if set(row) & set(self.ends):
                raise UsageError(f"The continuation {list(row)} has a token in it that ends a text; leave it out.")
            for place, token in enumerate(row):
                follow = self.tree.setdefault(row[:place], {})
                follow[token] = min(follow.get(token, FAR), len(row) - place)

    @classmethod
    def texts(cls, texts: Sequence[str], tokenizer: Tokenizer, ends: Collection[int] | None = None) -> "Among":
        """One of these texts, each in the tokens that the tokenizer itself gives it; after a word, begin them with a space."""
        if isinstance(texts, str):
            raise UsageError(f"Allowed continuations are a list of texts; got one string, {texts!r}. Put it in a list.")
        rows = [found.ids for found in tokenizer.encode_batch(texts, special=False)]
        for text, row in zip(texts, rows, strict=True):
            if tokenizer.unknown is not None and tokenizer.unknown in row:
                raise UsageError(f"The tokenizer has no tokens for {text!r}, so it cannot be written; take it out.")
        return cls(rows, ends_of(tokenizer, ends))

    def __repr__(self) -> str:
        return f"Among({len(self.whole)} rows)"

    def check(self, vocab: int, limit: int) -> None:
        known([*self.ends, *(token for row in self.whole for token in row)], vocab, repr(self))
        shortest = min(map(len, self.whole))
        if shortest > limit:
            raise UsageError(
                f"The shortest allowed continuation has {shortest} tokens, and at most {limit} are written; raise the limit."
            )

    def __call__(self, scores: Tensor, sofar: Sofar) -> Tensor:
        rows = []
        for number, written in enumerate(sofar.written):
            follow, left = self.tree.get(tuple(written), {}), sofar.left(number)
            allowed = np.zeros(scores.size(-1), bool)
            allowed[[token for token, more in follow.items() if more <= left]] = True
            rows.append((allowed, tuple(written) in self.whole))
        return allow_only(scores, rows, self.ends)
