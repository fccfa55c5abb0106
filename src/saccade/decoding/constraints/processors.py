"""Only what is allowed: texts that match an expression, JSON that fits a schema, or one of a list of texts.

    eos = tokenizer.eos_id
    dates = RegexConstraint(r"\\d{4}-\\d\\d-\\d\\d", tokenizer)
    generate(model, batch, stop_ids=eos, max_new_tokens=64, processors=[dates])
    json = JsonSchemaConstraint({"type": "object"}, tokenizer)
    generate(model, batch, stop_ids=eos, max_new_tokens=64, processors=[json])
    answers = ChoiceConstraint.from_texts(["yes", "no"], tokenizer)
    generate(model, batch, stop_ids=eos, max_new_tokens=64, processors=[answers])

A token is allowed if what stands there and the token begin a text that is allowed, and if that text can still be finished
with the tokens that are left. The stop token is allowed only when the text is whole. So what is written always keeps to the
rule, also when the limit cuts it off; if that is impossible from the outset, it is an error before anything is written.
The text is that of the written tokens alone, without the prompt.
"""

from collections.abc import Collection, Sequence

import numpy as np
from torch import Tensor

from saccade.decoding.constraints.completion import Ending
from saccade.decoding.constraints.grammar import GrammarConstraint, allow_only, stop_ids_or_eos
from saccade.decoding.constraints.json_schema import (
    SchemaSource,
    describe_schema,
    load_schema,
    string_hints,
    to_grammar_rule,
)
from saccade.decoding.constraints.matcher import make_grammar
from saccade.decoding.constraints.regex_parser import (
    max_bytes_to_end,
    parse_regex,
    repeated_classes,
    shortest_match,
    to_llguidance,
)
from saccade.decoding.logits_processors import CheckedProcessor, TokenHistory, check_token_ids
from saccade.errors import UsageError
from saccade.text.tokenizer import Tokenizer

UNREACHABLE_TOKENS = np.iinfo(np.int32).max  # more tokens than any continuation has


class RegexConstraint(GrammarConstraint):
    """Texts that match a regular expression, from the first letter to the last; `regex_parser` says what is read.

    `stop_ids` are the stop tokens, the tokenizer's own if none are given.
    """

    def __init__(self, regex: str, tokenizer: Tokenizer, stop_ids: Collection[int] | None = None):
        self.regex, self._node = regex, parse_regex(regex)
        grammar = make_grammar(f"/{to_llguidance(self._node)}/")
        reach, letters = max_bytes_to_end(self._node), repeated_classes(self._node)
        super().__init__(
            grammar, f"matches {regex!r}", tokenizer, stop_ids, max_bytes_to_end=reach, character_classes=letters
        )

    def __repr__(self) -> str:
        return f"RegexConstraint({self.regex!r})"

    def initial_ending(self) -> Ending | None:
        """The shortest text is known; in tokens of several letters another one may be shorter."""
        return self._vocabulary.encode_bytes(shortest_match(self._node).encode())


class JsonSchemaConstraint(GrammarConstraint):
    """JSON that fits a schema, given as a dictionary or as the path of a file; see `json_schema` for what is refused.

    `stop_ids` are the stop tokens, the tokenizer's own if none are given.
    """

    def __init__(self, schema: SchemaSource, tokenizer: Tokenizer, stop_ids: Collection[int] | None = None):
        self.name = describe_schema(schema)
        loaded = load_schema(schema)
        hints = string_hints(loaded)
        super().__init__(make_grammar(to_grammar_rule(loaded)), f"fits {self.name}", tokenizer, stop_ids, hints=hints)

    def __repr__(self) -> str:
        return f"JsonSchemaConstraint({self.name})"


class ChoiceConstraint(CheckedProcessor):
    """One of these rows of tokens, to its end.

    >>> import torch
    >>> rule = ChoiceConstraint([[1, 2], [1, 3, 3], [4]], stop_ids=[0])
    >>> rule(torch.zeros(1, 5), TokenHistory([[7]], [[1]], max_new_tokens=3))
    tensor([[-inf, -inf, 0., 0., -inf]])
    """

    def __init__(self, sequences: Sequence[Sequence[int]], stop_ids: Collection[int]):
        if not sequences:
            raise UsageError(
                "The list of allowed continuations is empty, so nothing could be written; give at least one."
            )
        if not stop_ids:
            raise UsageError("A list of allowed continuations needs the tokens that end a text; got none.")
        self.stop_ids = tuple(stop_ids)
        self.trie: dict[
            tuple[int, ...], dict[int, int]
        ] = {}  # what stands there: which tokens follow, and how many more
        self.sequences = {tuple(row) for row in sequences}
        for row in self.sequences:
            if set(row) & set(self.stop_ids):
                raise UsageError(f"The continuation {list(row)} has a token in it that ends a text; leave it out.")
            for place, token in enumerate(row):
                follow = self.trie.setdefault(row[:place], {})
                follow[token] = min(follow.get(token, UNREACHABLE_TOKENS), len(row) - place)

    @classmethod
    def from_texts(
        cls, texts: Sequence[str], tokenizer: Tokenizer, stop_ids: Collection[int] | None = None
    ) -> "ChoiceConstraint":
        """One of these texts, each in the tokens that the tokenizer itself gives it; after a word, begin them with a space."""
        if isinstance(texts, str):
            raise UsageError(f"Allowed continuations are a list of texts; got one string, {texts!r}. Put it in a list.")
        rows = [found.ids for found in tokenizer.encode_batch(texts, add_special_tokens=False)]
        for text, row in zip(texts, rows, strict=True):
            if tokenizer.unk_id is not None and tokenizer.unk_id in row:
                raise UsageError(f"The tokenizer has no tokens for {text!r}, so it cannot be written; take it out.")
        return cls(rows, stop_ids_or_eos(tokenizer, stop_ids))

    def __repr__(self) -> str:
        return f"ChoiceConstraint({len(self.sequences)} rows)"

    def check(self, vocab: int, max_new_tokens: int) -> None:
        check_token_ids([*self.stop_ids, *(token for row in self.sequences for token in row)], vocab, repr(self))
        shortest = min(map(len, self.sequences))
        if shortest > max_new_tokens:
            raise UsageError(
                f"The shortest allowed continuation has {shortest} tokens, and at most {max_new_tokens} are "
                "written; raise the limit."
            )

    def __call__(self, scores: Tensor, history: TokenHistory) -> Tensor:
        rows = []
        for number, written in enumerate(history.new_tokens):
            follow, left = self.trie.get(tuple(written), {}), history.remaining_tokens(number)
            allowed = np.zeros(scores.size(-1), bool)
            allowed[[token for token, more in follow.items() if more <= left]] = True
            rows.append((allowed, tuple(written) in self.sequences))
        return allow_only(scores, rows, self.stop_ids)
