"""What the page looks at: one model, and the last few looks, so that each of their maps can be asked for."""

import base64
import binascii
import threading
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from saccade.decoding.config import GenerationConfig
from saccade.errors import UsageError
from saccade.explain.ablate import HeadRef, ablate_heads, list_heads
from saccade.explain.build_maps import Selection
from saccade.explain.faithfulness import (
    TokenAttributions,
    attribute_look_input,
    measure_faithfulness,
    select_testable_maps,
)
from saccade.explain.head_stats import compute_map_head_stats
from saccade.explain.html_report import make_sections
from saccade.explain.inputs import RawInput, make_input, open_with_task
from saccade.explain.look import look_at
from saccade.explain.maps import AttentionMap, AttentionMaps
from saccade.models.capabilities import Modality
from saccade.models.check_weights import copy_weights
from saccade.models.io.model_dir import find_tensor_files, stat_files
from saccade.models.load import resolve_model_dir
from saccade.models.model import Model
from saccade.render.page import render_page
from saccade.serving.describe import describe_look, special_token_fractions
from saccade.serving.security import LookExpired
from saccade.tasks.base import Task

MAX_CACHED_LOOKS = 6  # looks that can still be asked about
MAX_WINDOW_ROWS = 64  # of a window of a long text


@dataclass(frozen=True)
class LookRequest:
    """What somebody typed or dropped, and how it is to be answered."""

    text: str = ""
    second_text: str | None = None
    image: str | None = None  # base64
    disabled_heads: tuple[str, ...] = ()  # heads that are switched off, by their names
    merge_subwords: bool = False
    first_query: int | None = None  # of long texts: the first row of a window that is shown as it is, not pooled
    beams: int = 1
    max_new_tokens: int | None = (
        None  # the most tokens to write; None: as many as the task allows, or 24 where a text is continued
    )

    @property
    def generation_config(self) -> GenerationConfig:
        return GenerationConfig(beams=self.beams, max_new_tokens=self.max_new_tokens)

    def to_input(self) -> RawInput:
        """As `saccade.look` takes it."""
        if self.image is not None:
            try:
                seen = base64.b64decode(self.image, validate=True)
            except binascii.Error:
                raise UsageError("The picture is no base64; send the bytes of a PNG or JPEG file that way.") from None
            return {"image": seen} | ({} if self.second_text is None else {"caption": self.second_text})
        if not self.text.strip():
            raise UsageError("There is nothing to look at; type a text.")
        return self.text if self.second_text is None else (self.text, self.second_text)


@dataclass(eq=False)
class CachedLook:
    """A look that can still be asked about, and what the answer was found to depend on, if somebody asked."""

    maps: AttentionMaps  # token by token
    request: LookRequest
    evidence: TokenAttributions | None = None

    def merge_if_requested(self, attention_map: AttentionMap) -> AttentionMap:
        """A map as it was asked for: token by token, or joined to words."""
        return attention_map.merge_subwords(self.maps.texts) if self.request.merge_subwords else attention_map


def model_display_name(run: str | Path | Model) -> str:
    """What a model is called on the page: its directory, or the one around it where that is only called `model`."""
    if isinstance(run, Model):
        return "model"
    path = Path(run).resolve()
    return (path.parent.name if path.name == "model" else "") or path.name or str(run)


def unavailable_reason(task: Task | None, model: Model) -> str | None:
    """Why a model cannot be looked at on the page, or None where it can: it takes a text or a picture there."""
    if model.capabilities.input is Modality.FEATURES:
        return "it reads numbers, and Look takes a text or a picture; Runs shows its curves and its report"
    if model.capabilities.input is Modality.TEXT and model.tokenizer is None:
        return "it came without a tokenizer; load it from a directory that has tokenizer files"
    return None


class ModelSession:
    """One model behind the page; one thing is computed at a time, since it takes all cores."""

    def __init__(self, run: str | Path | Model, name: str = ""):
        self.name = name or model_display_name(run)
        self.task, self.model = open_with_task(run)
        self._file_states = stat_files([] if isinstance(run, Model) else find_tensor_files(resolve_model_dir(run)))
        if self._file_states:  # a server lives long, and files change meanwhile
            copy_weights(self.model)
        self.head_refs = {one.name: one for one in list_heads(self.model)}
        self._cached_looks: OrderedDict[int, CachedLook] = OrderedDict()
        self._last_look_id = 0
        self._lock = threading.Lock()

    def describe(self) -> dict[str, Any]:
        """What the page has to know before anything is asked."""
        capabilities = self.model.capabilities
        reads_images = capabilities.input is Modality.IMAGE
        return {
            "run": self.name,
            "family": self.model.family.name,
            "task": None if self.task is None else self.task.name,
            "reads_images": reads_images,
            "generates_text": capabilities.is_autoregressive,
            "has_answer": not reads_images and (capabilities.is_autoregressive or self.model.head is not None),
            "max_positions": self.model.max_positions,
            "unavailable_reason": unavailable_reason(self.task, self.model),
            "heads": [describe_head(name, one) for name, one in self.head_refs.items()],
            "parameters": sum(p.numel() for p in self.model.parameters()),
        }

    def look(self, request: LookRequest) -> dict[str, Any]:
        """Look, keep what was seen, and describe it; the weights are asked for map by map."""
        self._check_files()
        off = [self._find_head(name) for name in request.disabled_heads]
        with self._lock, ablate_heads(self.model, off):
            asked = make_input(self.task, self.model, request.to_input())
            rows = (
                None
                if request.first_query is None
                else range(request.first_query, request.first_query + MAX_WINDOW_ROWS)
            )
            found = look_at(asked, Selection(queries=rows), request.generation_config)
            self._last_look_id += 1
            number, self._cached_looks[self._last_look_id] = self._last_look_id, CachedLook(found, request)
            while len(self._cached_looks) > MAX_CACHED_LOOKS:
                self._cached_looks.popitem(last=False)
        return describe_look(number, found, found.merge_subwords() if request.merge_subwords else found) | {
            "window": request.first_query
        }

    def encode_weights(self, look_id: int, map_index: int, measure: str = "weight") -> bytes:
        """All heads of one map in half precision, (H, Q, K), the least byte of each number first.

        With the measure `value_norm` each weight is multiplied by the norm of its value vector.
        """
        kept, seen = self._find_look(look_id), self._find_map(look_id, map_index)
        found = kept.merge_if_requested(seen.weight_by_value_norm() if measure == "value_norm" else seen)
        return found.to_dense().to(torch.float16).contiguous().numpy().tobytes()

    def describe_heads(self, look_id: int, map_index: int) -> list[dict[str, Any]]:
        """What each head of a map does, in a word and in numbers."""
        seen = self._find_look(look_id).merge_if_requested(self._find_map(look_id, map_index))
        if seen.kind not in ("self", "cross", "image"):
            return [{"head": head, "label": seen.head_name(place)} for place, head in enumerate(seen.heads)]
        shares = special_token_fractions(self._find_map(look_id, map_index))
        return [
            {
                "head": one.head,
                "label": one.label,
                "entropy": one.metrics.entropy,
                "special_token_fraction": weight,
                "special_token_value_fraction": passed,
            }
            for one, (weight, passed) in zip(compute_map_head_stats(seen), shares, strict=True)
        ]

    def render_page(self, look_id: int) -> str:
        """A look as one file that opens anywhere."""
        kept = self._find_look(look_id)
        found = kept.maps.merge_subwords() if kept.request.merge_subwords else kept.maps
        return render_page(f"Where {self.name} looked", make_sections(found))

    def measure_faithfulness(self, look_id: int, map_index: int, head: int) -> dict[str, Any]:
        """Whether the answer depends on what a head points at: two numbers, or null where it cannot be told, and a label."""
        kept, seen = self._find_look(look_id), self._find_map(look_id, map_index)
        with self._lock, ablate_heads(self.model, [self._find_head(name) for name in kept.request.disabled_heads]):
            if kept.evidence is None:
                kept.evidence = attribute_look_input(
                    make_input(self.task, self.model, kept.request.to_input()), kept.request.generation_config
                )
            found = next((one for one in select_testable_maps(kept.evidence) if one.name == seen.name), None)
            if found is None:
                raise UsageError(
                    f"{seen.title} does not look at tokens that were read, or is pooled, so none can be taken away to see."
                )
            if not 0 <= head < len(found.heads):
                raise UsageError(f"{seen.title} has {len(found.heads)} heads, from 0; asked for {head}.")
            one = measure_faithfulness(kept.evidence, found, head)
        numbers = {"gradient_correlation": one.gradient_correlation, "deletion_score": one.deletion_score}
        return {"title": one.title, "label": one.label} | {k: None if v != v else v for k, v in numbers.items()}

    def _check_files(self) -> None:
        """What is shown is the model that lies in its directory, or else it is said."""
        changed = [path for path, state in stat_files(self._file_states).items() if state != self._file_states[path]]
        if changed:
            raise UsageError(
                f"{changed[0]} has changed since the model was loaded, so its maps would be those of the former weights; "
                "start saccade serve again."
            )

    def _find_head(self, name: str) -> HeadRef:
        if name not in self.head_refs:
            raise UsageError(f"The model has no head {name!r} to switch off.")
        return self.head_refs[name]

    def _find_look(self, look_id: int) -> CachedLook:
        found = self._cached_looks.get(look_id)
        if found is None:
            raise LookExpired(f"Look {look_id} is not kept any more; look again.")
        return found

    def _find_map(self, look_id: int, map_index: int) -> AttentionMap:
        found = self._find_look(look_id).maps
        if not 0 <= map_index < len(found):
            raise UsageError(f"Look {look_id} has {len(found)} maps, from 0; asked for {map_index}.")
        return found[map_index]


def describe_head(name: str, head_ref: HeadRef) -> dict[str, Any]:
    return {"name": name, "side": head_ref.side, "kind": head_ref.kind, "layer": head_ref.layer, "head": head_ref.head}
