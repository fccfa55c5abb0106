"""Constrained decoding: texts that match a regular expression, JSON that fits a schema, or one of several choices.

    eos = tokenizer.eos_id
    dates = RegexConstraint(r"\\d{4}-\\d\\d-\\d\\d", tokenizer)
    generate(model, batch, stop_ids=eos, max_new_tokens=64, processors=[dates])
    json = JsonSchemaConstraint({"type": "object"}, tokenizer)
    generate(model, batch, stop_ids=eos, max_new_tokens=64, processors=[json])
    answers = ChoiceConstraint.from_texts(["yes", "no"], tokenizer)
    generate(model, batch, stop_ids=eos, max_new_tokens=64, processors=[answers])

A token is allowed if the text so far and the token are a prefix of an allowed text that can be completed with the
remaining tokens. The stop token is allowed only when the text is complete. The output therefore always satisfies the
constraint, also at the token limit; if that is impossible from the start, it is an error before decoding begins. Only
generated tokens count, not the prompt.
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

UNREACHABLE_TOKENS = np.iinfo(np.int32).max  # stands for a continuation that does not exist


class RegexConstraint(GrammarConstraint):
    """Constrain the whole text to a regular expression; see `regex_parser` for the supported syntax.

    `stop_ids` defaults to the end token of the tokenizer.
    """

    regex: str

    def __init__(self, regex: str, tokenizer: Tokenizer, stop_ids: Collection[int] | None = None):
        self.regex, self._node = regex, parse_regex(regex)
        grammar = make_grammar(f"/{to_llguidance(self._node)}/")
        super().__init__(
            grammar,
            f"matches {regex!r}",
            tokenizer,
            stop_ids,
            max_bytes_to_end=max_bytes_to_end(self._node),
            character_classes=repeated_classes(self._node),
        )

    def __repr__(self) -> str:
        return f"RegexConstraint({self.regex!r})"

    def initial_ending(self) -> Ending | None:
        """The shortest match in bytes; with tokens of several letters another match may take fewer tokens."""
        return self._vocabulary.encode_bytes(shortest_match(self._node).encode())


class JsonSchemaConstraint(GrammarConstraint):
    """Constrain the text to JSON that fits a schema (a dictionary or the path of a file); see `json_schema` for its limits.

    `stop_ids` defaults to the end token of the tokenizer.
    """

    def __init__(self, schema: SchemaSource, tokenizer: Tokenizer, stop_ids: Collection[int] | None = None):
        self.name: str = describe_schema(schema)
        loaded = load_schema(schema)
        hints = string_hints(loaded)
        super().__init__(make_grammar(to_grammar_rule(loaded)), f"fits {self.name}", tokenizer, stop_ids, hints=hints)

    def __repr__(self) -> str:
        return f"JsonSchemaConstraint({self.name})"


class ChoiceConstraint(CheckedProcessor):
    """Constrain the text to one of several token sequences.

    >>> import torch
    >>> choices = ChoiceConstraint([[1, 2], [1, 3, 3], [4]], stop_ids=[0])
    >>> choices(torch.zeros(1, 5), TokenHistory([[7]], [[1]], max_new_tokens=3))
    tensor([[-inf, -inf, 0., 0., -inf]])
    """

    def __init__(self, sequences: Sequence[Sequence[int]], stop_ids: Collection[int]):
        if not sequences:
            raise UsageError("The list of choices is empty, so nothing could be generated; give at least one.")
        if not stop_ids:
            raise UsageError("ChoiceConstraint needs at least one stop token in `stop_ids`; got none.")
        self.stop_ids: tuple[int, ...] = tuple(stop_ids)
        self.trie: dict[tuple[int, ...], dict[int, int]] = {}  # prefix -> next token -> fewest tokens to the end
        self.sequences: set[tuple[int, ...]] = {tuple(row) for row in sequences}
        for row in self.sequences:
            if set(row) & set(self.stop_ids):
                raise UsageError(f"The choice {list(row)} contains a stop token; remove it.")
            for position, token in enumerate(row):
                next_tokens = self.trie.setdefault(row[:position], {})
                next_tokens[token] = min(next_tokens.get(token, UNREACHABLE_TOKENS), len(row) - position)

    @classmethod
    def from_texts(
        cls, texts: Sequence[str], tokenizer: Tokenizer, stop_ids: Collection[int] | None = None
    ) -> "ChoiceConstraint":
        """Make the constraint from texts, which the tokenizer encodes; begin them with a space if they follow a word."""
        if isinstance(texts, str):
            raise UsageError(f"Choices must be a list of texts; got one string, {texts!r}. Put it in a list.")
        rows = [encoding.ids for encoding in tokenizer.encode_batch(texts, add_special_tokens=False)]
        for text, row in zip(texts, rows, strict=True):
            if tokenizer.unk_id is not None and tokenizer.unk_id in row:
                raise UsageError(f"The tokenizer has no tokens for {text!r}, so it cannot be generated; remove it.")
        return cls(rows, stop_ids_or_eos(tokenizer, stop_ids))

    def __repr__(self) -> str:
        return f"ChoiceConstraint({len(self.sequences)} choices)"

    def check(self, vocab: int, max_new_tokens: int) -> None:
        check_token_ids([*self.stop_ids, *(token for row in self.sequences for token in row)], vocab, repr(self))
        shortest = min(map(len, self.sequences))
        if shortest > max_new_tokens:
            raise UsageError(
                f"The shortest choice has {shortest} tokens, and max_new_tokens is {max_new_tokens}; raise it."
            )

    def __call__(self, scores: Tensor, history: TokenHistory) -> Tensor:
        rows = []
        for number, tokens in enumerate(history.new_tokens):
            next_tokens, remaining = self.trie.get(tuple(tokens), {}), history.remaining_tokens(number)
            allowed = np.zeros(scores.size(-1), bool)
            allowed[[token for token, needed in next_tokens.items() if needed <= remaining]] = True
            rows.append((allowed, tuple(tokens) in self.sequences))
        return allow_only(scores, rows, self.stop_ids)
