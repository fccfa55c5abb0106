"""What the page looks at: one model, and the last few looks, so that each of their maps can be asked for."""

import base64
import binascii
import threading
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from saccade.decoding.settings import Decoding
from saccade.errors import UsageError
from saccade.explain.ablate import Switch, switches, without
from saccade.explain.agreement import Evidence, agree, evidence_of, judged
from saccade.explain.gallery import sections
from saccade.explain.heads import heads_of
from saccade.explain.inputs import Input, ask, opened
from saccade.explain.look import look_at
from saccade.explain.looks import Looks, Seen
from saccade.explain.naming import Wanted
from saccade.explain.page import page
from saccade.models.capabilities import Modality
from saccade.models.files import file_states, tensor_files
from saccade.models.load import local
from saccade.models.model import Model
from saccade.models.sound import copy_weights
from saccade.serving.describe import describe_look, special_shares
from saccade.serving.guard import Gone
from saccade.tasks.task import Task

KEPT = 6  # looks that can still be asked about
ROWS = 64  # of a window of a long text


@dataclass(frozen=True)
class Asking:
    """What somebody typed or dropped, and how it is to be answered."""

    text: str = ""
    second: str | None = None
    picture: str | None = None  # base64
    off: tuple[str, ...] = ()  # heads that are switched off, by their names
    words: bool = False
    first: int | None = None  # of long texts: the first row of a window that is shown as it is, not pooled
    beams: int = 1
    length: int | None = (
        None  # the most tokens to write; None: as many as the task allows, or 24 where a text is continued
    )

    @property
    def decoding(self) -> Decoding:
        return Decoding(beams=self.beams, length=self.length)

    def input(self) -> Input:
        """As `saccade.look` takes it."""
        if self.picture is not None:
            try:
                seen = base64.b64decode(self.picture, validate=True)
            except binascii.Error:
                raise UsageError("The picture is no base64; send the bytes of a PNG or JPEG file that way.") from None
            return {"image": seen} | ({} if self.second is None else {"caption": self.second})
        if not self.text.strip():
            raise UsageError("There is nothing to look at; type a text.")
        return self.text if self.second is None else (self.text, self.second)


@dataclass(eq=False)
class Kept:
    """A look that can still be asked about, and what the answer was found to depend on, if somebody asked."""

    looks: Looks  # token by token
    asking: Asking
    evidence: Evidence | None = None

    def shown(self, seen: Seen) -> Seen:
        """A map as it was asked for: token by token, or joined to words."""
        return seen.to_words(self.looks.texts) if self.asking.words else seen


def name_of(run: str | Path | Model) -> str:
    """What a model is called on the page: its directory, or the one around it where that is only called `model`."""
    if isinstance(run, Model):
        return "model"
    path = Path(run).resolve()
    return (path.parent.name if path.name == "model" else "") or path.name or str(run)


def unavailable(task: Task | None, model: Model) -> str | None:
    """Why a model cannot be looked at on the page, or None where it can: it takes a text or a picture there."""
    if model.capabilities.input is Modality.POINTS:
        return "it reads numbers, and Look takes a text or a picture; Runs shows its curves and its report"
    if model.capabilities.input is Modality.TEXT and model.tokenizer is None:
        return "it came without a tokenizer; load it from a directory that has tokenizer files"
    return None


class Room:
    """One model behind the page; one thing is computed at a time, since it takes all cores."""

    def __init__(self, run: str | Path | Model, name: str = ""):
        self.name = name or name_of(run)
        self.task, self.model = opened(run)
        self._files = file_states([] if isinstance(run, Model) else tensor_files(local(run)))
        if self._files:  # a server lives long, and files change meanwhile
            copy_weights(self.model)
        self.switches = {one.name: one for one in switches(self.model)}
        self._looks: OrderedDict[int, Kept] = OrderedDict()
        self._number = 0
        self._lock = threading.Lock()

    def about(self) -> dict[str, Any]:
        """What the page has to know before anything is asked."""
        capabilities = self.model.capabilities
        reads_images = capabilities.input is Modality.IMAGE
        return {
            "run": self.name,
            "family": self.model.family.name,
            "task": None if self.task is None else self.task.name,
            "sees": reads_images,
            "writes": capabilities.autoregressive,
            "answers": not reads_images and (capabilities.autoregressive or self.model.head is not None),
            "reads": self.model.limit,
            "unavailable": unavailable(self.task, self.model),
            "heads": [switched(name, one) for name, one in self.switches.items()],
            "parameters": sum(p.numel() for p in self.model.parameters()),
        }

    def look(self, asking: Asking) -> dict[str, Any]:
        """Look, keep what was seen, and describe it; the weights are asked for map by map."""
        self._check_files()
        off = [self._switch(name) for name in asking.off]
        with self._lock, without(self.model, off):
            asked = ask(self.task, self.model, asking.input())
            rows = None if asking.first is None else range(asking.first, asking.first + ROWS)
            found = look_at(asked, Wanted(rows=rows), asking.decoding)
            self._number += 1
            number, self._looks[self._number] = self._number, Kept(found, asking)
            while len(self._looks) > KEPT:
                self._looks.popitem(last=False)
        return describe_look(number, found, found.to_words() if asking.words else found) | {"window": asking.first}

    def weights(self, number: int, map: int, measure: str = "weight") -> bytes:
        """All heads of one map in half precision, (H, Q, K), the least byte of each number first.

        With the measure `value_norm` each weight is multiplied by the norm of its value vector.
        """
        kept, seen = self._kept(number), self._map(number, map)
        found = kept.shown(seen.weigh_values() if measure == "value_norm" else seen)
        return found.dense().to(torch.float16).contiguous().numpy().tobytes()

    def heads(self, number: int, map: int) -> list[dict[str, Any]]:
        """What each head of a map does, in a word and in numbers."""
        seen = self._kept(number).shown(self._map(number, map))
        if seen.kind not in ("self", "across", "picture"):
            return [{"head": head, "named": seen.called(place)} for place, head in enumerate(seen.heads)]
        shares = special_shares(self._map(number, map))
        return [
            {
                "head": one.head,
                "named": one.named,
                "entropy": one.numbers.entropy,
                "special": weight,
                "special_passed": passed,
            }
            for one, (weight, passed) in zip(heads_of(seen), shares, strict=True)
        ]

    def page(self, number: int) -> str:
        """A look as one file that opens anywhere."""
        kept = self._kept(number)
        found = kept.looks.to_words() if kept.asking.words else kept.looks
        return page(f"Where {self.name} looked", sections(found))

    def agree(self, number: int, map: int, head: int) -> dict[str, Any]:
        """Whether the answer depends on what a head points at: two numbers, or null where it cannot be told, and a label."""
        kept, seen = self._kept(number), self._map(number, map)
        with self._lock, without(self.model, [self._switch(name) for name in kept.asking.off]):
            if kept.evidence is None:
                kept.evidence = evidence_of(ask(self.task, self.model, kept.asking.input()), kept.asking.decoding)
            found = next((one for one in judged(kept.evidence) if one.name == seen.name), None)
            if found is None:
                raise UsageError(
                    f"{seen.title} does not look at tokens that were read, or is pooled, so none can be taken away to see."
                )
            if not 0 <= head < len(found.heads):
                raise UsageError(f"{seen.title} has {len(found.heads)} heads, from 0; asked for {head}.")
            one = agree(kept.evidence, found, head)
        numbers = {"gradients": one.gradients, "deletion": one.deletion}
        return {"title": one.title, "label": one.label} | {k: None if v != v else v for k, v in numbers.items()}

    def _check_files(self) -> None:
        """What is shown is the model that lies in its directory, or else it is said."""
        changed = [path for path, state in file_states(self._files).items() if state != self._files[path]]
        if changed:
            raise UsageError(
                f"{changed[0]} has changed since the model was loaded, so its maps would be those of the former weights; "
                "start saccade serve again."
            )

    def _switch(self, name: str) -> Switch:
        if name not in self.switches:
            raise UsageError(f"The model has no head {name!r} to switch off.")
        return self.switches[name]

    def _kept(self, number: int) -> Kept:
        found = self._looks.get(number)
        if found is None:
            raise Gone(f"Look {number} is not kept any more; look again.")
        return found

    def _map(self, number: int, map: int) -> Seen:
        found = self._kept(number).looks
        if not 0 <= map < len(found):
            raise UsageError(f"Look {number} has {len(found)} maps, from 0; asked for {map}.")
        return found[map]


def switched(name: str, switch: Switch) -> dict[str, Any]:
    return {"name": name, "side": switch.side, "kind": switch.kind, "layer": switch.layer, "head": switch.head}
