"""How a text is written, as one value: what the commands take as flags, and what tasks and the server hand to `ways`.

The file imports no torch, so that a command can explain its flags at once.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from os import PathLike
from typing import Annotated, Any, Literal

import tyro

from saccade.errors import UsageError

STEEPEST = 10.0  # length penalty: beyond it lengths to that power are no numbers any more
ALIASES = {"schema": "json-schema"}  # fields whose flag has another name
SEEDS = range(-(2**63), 2**64)  # what torch takes


@dataclass(frozen=True)
class Decoding:
    """Greedy, unless something else is said. `check` refuses what cannot be had together."""

    beams: int = 1
    """Search with so many beams; 1: none, the best token each time."""
    length_penalty: float = 1.0
    """A score is the sum of log-probabilities by length to this power: above 0 it favours long texts."""
    coverage: float = 0.0
    """With beams: the weight of what was not looked at in the source."""
    groups: int = 1
    """With beams: groups of beams that keep out of each other's way."""
    diversity: float = 0.0
    """With groups: what a token costs that an earlier group has just chosen."""
    enough: Literal["first", "likely", "sure"] = "likely"
    """With beams: when to stop looking, once as many texts have ended as there are beams."""
    n_best: int = 1
    """So many texts for each input, the best first: of the beams, or of so many draws."""
    temperature: float | None = None
    """Draw by chance: below 1 the likely is likelier, 0 takes the best token each time."""
    top_k: int = 0
    """Draw among so many best tokens; 0: all."""
    top_p: float = 1.0
    """Draw among the fewest tokens that have this share together."""
    min_p: float = 0.0
    """Draw among tokens that are at least this share as likely as the best."""
    typical: float = 1.0
    """Draw among the tokens nearest to the expected surprise that have this share together."""
    seed: int = 0
    """The same seed draws the same."""
    samples: int = 0
    """Draw so many texts and take the one most like all others (minimum Bayes risk); 0: do not."""
    contrast: float = 0.0
    """Contrastive search: from 0, greedy, to 1, as unlike as can be to what stands there."""
    length: int | None = None
    """The most tokens to write."""
    min_length: int = 0
    """The fewest tokens to write."""
    no_repeat: int = 0
    """No so many tokens in a row twice, prompt included; 0: no matter."""
    repetition: float = 1.0
    """Above 1: what stands there already is less likely to come again."""
    forbid: Annotated[tuple[str, ...], tyro.conf.arg(metavar="TEXT")] = ()
    """Words that may not be written."""
    allow: Annotated[tuple[str, ...], tyro.conf.arg(metavar="TEXT")] = ()
    """Write one of these texts and nothing else."""
    regex: Annotated[str, tyro.conf.arg(metavar="EXPRESSION")] = ""
    """Write a text that matches this expression from its first letter to its last."""
    schema: Annotated[
        str | PathLike[str] | Mapping[str, Any],
        tyro.conf.arg(name="json-schema", metavar="FILE", constructor=str, help_behavior_hint="(default: '')"),
    ] = ""
    """Write JSON that fits the JSON schema in this file; in Python, a path or the schema itself as a dictionary."""
    stop: Annotated[tuple[str, ...], tyro.conf.arg(metavar="TEXT")] = ()
    """End before any of these texts."""
    draft: Annotated[str, tyro.conf.arg(metavar="RUN")] = ""
    """A small model with the same tokens proposes, the model checks: the greedy text, sooner."""
    look_up: tyro.conf.FlagCreatePairsOff[bool] = False
    """The same, with what the input says as the proposal: for texts that quote it."""

    @property
    def plain(self) -> bool:
        """The best token each time, whatever the rules: no beams, no chance, nothing that speeds it up."""
        return not (any(on for _, on in self._ways()) or self.temperature)

    @property
    def structured(self) -> bool:
        """The answer is JSON: it stands alone, without the text that it follows."""
        return self.schema != ""

    @property
    def streams(self) -> bool:
        """Each token is chosen once and for all, and one text comes of it: it can be shown as it is written."""
        return self.n_best == 1 and not any(on for _, on in self._ways())

    def or_draw(self, temperature: float, top_p: float) -> "Decoding":
        """The same, drawing so if nothing is said of how to choose: for a command that draws by nature."""
        if self.temperature is not None or any(on for name, on in self._ways() if name != "samples"):
            return self
        return replace(self, temperature=temperature, top_p=top_p if self.top_p == 1.0 else self.top_p)

    def check(self) -> "Decoding":
        """The same, or an error that names what cannot be had together."""
        ways = [name for name, on in self._ways() if on]
        if len(ways) > 1:
            raise UsageError(f"{flag(ways[0])} and {flag(ways[1])} are two ways to write; choose one of them.")
        for name, problem in self._problems(ways[0] if ways else ""):
            raise UsageError(f"{flag(name)}: {problem}")
        return self

    def _ways(self) -> list[tuple[str, bool]]:
        """Every way to write but the plain one, and whether it is asked for."""
        on = {"beams": self.beams > 1, "samples": self.samples > 0, "contrast": self.contrast != 0}
        return [*on.items(), ("draft", bool(self.draft)), ("look_up", self.look_up)]

    def _problems(self, way: str) -> Iterator[tuple[str, str]]:
        """The settings that are wrong, and why."""
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, float) and not math.isfinite(value):
                yield item.name, f"a number is needed; got {value}."
        yield from self._beyond()
        yield from self._lone(way)
        yield from self._texts()
        if self.beams % self.groups:
            yield "groups", f"they share the beams evenly; got {self.beams} beams in {self.groups} groups."
        if self.length is not None and self.length < max(1, self.min_length):
            yield "length", f"at most {self.length} tokens and at least {max(1, self.min_length)} cannot both be."

    def _beyond(self) -> Iterator[tuple[str, str]]:
        """Numbers outside what they may be."""
        for name in ("beams", "n_best", "groups"):
            if getattr(self, name) < 1:
                yield name, f"at least 1 is needed; got {getattr(self, name)}."
        for name in ("samples", "min_length", "no_repeat", "top_k", "temperature", "coverage", "diversity"):
            if (getattr(self, name) or 0) < 0:
                yield name, f"0 or more is needed; got {getattr(self, name)}."
        for name in ("top_p", "typical"):
            if not 0 < getattr(self, name) <= 1:
                yield name, f"a share above 0 and at most 1, which means all, is needed; got {getattr(self, name)}."
        for name in ("min_p", "contrast"):
            if not 0 <= getattr(self, name) <= 1:
                yield name, f"a share from 0 to 1 is needed; got {getattr(self, name)}."
        if self.repetition <= 0:
            yield "repetition", f"a number above 0 is needed, and 1 changes nothing; got {self.repetition}."
        if abs(self.length_penalty) > STEEPEST:
            yield "length_penalty", f"a number from {-STEEPEST:g} to {STEEPEST:g} is needed; got {self.length_penalty}."
        if self.seed not in SEEDS:
            yield "seed", f"a whole number of at most 64 bits is needed; got {self.seed}."

    def _texts(self) -> Iterator[tuple[str, str]]:
        """Texts that cannot be looked for or kept to."""
        for name in ("forbid", "stop"):
            if "" in getattr(self, name):
                yield name, "a text of at least one letter is needed; got an empty one. Leave it out."
        given = [name for name in ("allow", "regex", "schema") if getattr(self, name) not in ("", ())]
        if len(given) > 1:
            first = "a list of texts" if given[0] == "allow" else "an expression"
            yield given[0], f"{first} and {flag(given[1])} both say all that may be written; choose one of them."
        if given and self.stop:
            yield given[0], "it says where a text ends, and --stop would cut it before; leave one of them out."
        if self.regex:
            from saccade.decoding.expression import read

            try:
                read(self.regex)
            except ValueError as error:
                yield "regex", str(error)
        if "schema" in given:
            from saccade.decoding.json_schema import load_schema

            load_schema(self.schema)  # its errors name the file, or the place in the schema

    def _lone(self, way: str) -> Iterator[tuple[str, str]]:
        """Settings that mean nothing without another, or nothing with it."""
        usual = Decoding()
        drawing = bool(self.temperature) or way == "samples"
        if self.temperature and way not in ("", "samples"):
            yield "temperature", f"{flag(way)} leaves nothing to chance; leave one of the two out."
        if way == "samples" and self.temperature == 0:
            yield "samples", "they are drawn, and a temperature of 0 draws nothing; leave it out, or raise it."
        for name in ("top_k", "top_p", "min_p", "typical"):
            if getattr(self, name) != getattr(usual, name) and not drawing:
                yield name, "it narrows what is drawn, and nothing is drawn; give --temperature too."
        for name in ("coverage", "groups", "diversity", "enough"):
            if getattr(self, name) != getattr(usual, name) and way != "beams":
                yield name, "it is about beams, and there are none; give --beams too."
        if self.diversity and self.groups == 1:
            yield "diversity", "it is between groups of beams, and there is one; give --groups too."
        if self.n_best > 1 and way != "beams" and not (self.temperature and way == ""):
            yield "n_best", "several texts come of --beams, or of draws (--temperature); give one of them too."
        if way == "beams" and self.n_best > self.beams:
            yield "n_best", f"{self.beams} beams find {self.beams} texts at most; got {self.n_best}. Give more beams."


def flag(name: str) -> str:
    """
    >>> flag("n_best")
    '--n-best'
    """
    return f"--{ALIASES.get(name, name).replace('_', '-')}"
