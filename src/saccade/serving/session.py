"""A model behind the page, and a cache of its last looks, whose attention maps are requested one by one."""

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

MAX_CACHED_LOOKS = 6  # per model
MAX_WINDOW_ROWS = 64  # rows of a long text that are shown without pooling


@dataclass(frozen=True)
class LookRequest:
    """An input for a model, and the settings of its generation and its attention maps."""

    text: str = ""
    second_text: str | None = None
    image: str | None = None  # base64
    disabled_heads: tuple[str, ...] = ()  # names of heads to ablate
    merge_subwords: bool = False
    first_query: int | None = None  # of long texts: the first row of a window without pooling
    beams: int = 1
    max_new_tokens: int | None = None  # None: as many as the task allows, or 24 to continue a text

    @property
    def generation_config(self) -> GenerationConfig:
        return GenerationConfig(beams=self.beams, max_new_tokens=self.max_new_tokens)

    def to_input(self) -> RawInput:
        """The input as `saccade.look` takes it."""
        if self.image is not None:
            try:
                image = base64.b64decode(self.image, validate=True)
            except binascii.Error:
                raise UsageError("image: not valid base64; send the bytes of a PNG or JPEG file as base64.") from None
            return {"image": image} | ({} if self.second_text is None else {"caption": self.second_text})
        if not self.text.strip():
            raise UsageError("The text is empty; type a text.")
        return self.text if self.second_text is None else (self.text, self.second_text)


@dataclass(eq=False)
class CachedLook:
    """The attention maps of a request, and its token attributions once they have been computed."""

    maps: AttentionMaps  # not merged to words
    request: LookRequest
    evidence: TokenAttributions | None = None

    def merge_if_requested(self, attention_map: AttentionMap) -> AttentionMap:
        """The map with subwords merged to words if the request says so."""
        return attention_map.merge_subwords(self.maps.texts) if self.request.merge_subwords else attention_map


def model_display_name(run: str | Path | Model) -> str:
    """The name of a model on the page: that of its directory, or of the parent directory if it is called `model`."""
    if isinstance(run, Model):
        return "model"
    path = Path(run).resolve()
    return (path.parent.name if path.name == "model" else "") or path.name or str(run)


def unavailable_reason(task: Task | None, model: Model) -> str | None:
    """Why the page cannot show the attention of a model; None if it can."""
    if model.capabilities.input is Modality.FEATURES:
        return "its input is numeric, and Look takes a text or an image; Runs shows its curves and its report"
    if model.capabilities.input is Modality.AUDIO:
        return "its input is a recording; saccade look RUN FILE --html draws its attention, and Runs shows its curves"
    if model.capabilities.input is Modality.TEXT and model.tokenizer is None:
        return "it has no tokenizer; load it from a directory with tokenizer files"
    return None


class ModelSession:
    """A model behind the page. It computes one request at a time, which uses all cores."""

    def __init__(self, run: str | Path | Model, name: str = ""):
        self.name = name or model_display_name(run)
        self.task, self.model = open_with_task(run)
        self._file_states = stat_files([] if isinstance(run, Model) else find_tensor_files(resolve_model_dir(run)))
        if self._file_states:  # the files may change while the server runs, so the weights are not memory-mapped
            copy_weights(self.model)
        self.head_refs = {head.name: head for head in list_heads(self.model)}
        self._cached_looks: OrderedDict[int, CachedLook] = OrderedDict()
        self._last_look_id = 0
        self._lock = threading.Lock()

    def describe(self) -> dict[str, Any]:
        """The properties of the model that the page needs before the first request."""
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
            "heads": [describe_head(name, head) for name, head in self.head_refs.items()],
            "parameters": sum(p.numel() for p in self.model.parameters()),
        }

    def look(self, request: LookRequest) -> dict[str, Any]:
        """Compute and cache the attention maps of an input, and describe them without the weights."""
        self._check_files()
        disabled, first = [self._find_head(name) for name in request.disabled_heads], request.first_query
        with self._lock, ablate_heads(self.model, disabled):
            inputs = make_input(self.task, self.model, request.to_input())
            rows = None if first is None else range(first, first + MAX_WINDOW_ROWS)
            maps = look_at(inputs, Selection(queries=rows), request.generation_config)
            self._last_look_id += 1
            look_id, self._cached_looks[self._last_look_id] = self._last_look_id, CachedLook(maps, request)
            while len(self._cached_looks) > MAX_CACHED_LOOKS:
                self._cached_looks.popitem(last=False)
        return describe_look(look_id, maps, maps.merge_subwords() if request.merge_subwords else maps) | {
            "window": first
        }

    def encode_weights(self, look_id: int, map_index: int, measure: str = "weight") -> bytes:
        """The weights of all heads of a map, (H, Q, K), as little-endian 16-bit floats.

        With the measure `value_norm` each weight is multiplied by the norm of its value vector.
        """
        look, attention_map = self._find_look(look_id), self._find_map(look_id, map_index)
        shown = look.merge_if_requested(
            attention_map.weight_by_value_norm() if measure == "value_norm" else attention_map
        )
        return shown.to_dense().to(torch.float16).contiguous().numpy().tobytes()

    def describe_heads(self, look_id: int, map_index: int) -> list[dict[str, Any]]:
        """The label and the statistics of each head of a map."""
        shown = self._find_look(look_id).merge_if_requested(self._find_map(look_id, map_index))
        if shown.kind not in ("self", "cross", "image"):
            return [{"head": head, "label": shown.head_name(i)} for i, head in enumerate(shown.heads)]
        fractions = special_token_fractions(self._find_map(look_id, map_index))
        return [
            {
                "head": stats.head,
                "label": stats.label,
                "entropy": stats.metrics.entropy,
                "special_token_fraction": weight_fraction,
                "special_token_value_fraction": value_fraction,
            }
            for stats, (weight_fraction, value_fraction) in zip(compute_map_head_stats(shown), fractions, strict=True)
        ]

    def render_page(self, look_id: int) -> str:
        """All maps of a look as one self-contained HTML page."""
        look = self._find_look(look_id)
        maps = look.maps.merge_subwords() if look.request.merge_subwords else look.maps
        return render_page(f"Attention of {self.name}", make_sections(maps))

    def measure_faithfulness(self, look_id: int, map_index: int, head: int) -> dict[str, Any]:
        """Faithfulness of a head: two numbers, None where they are undefined, and a label."""
        look, attention_map = self._find_look(look_id), self._find_map(look_id, map_index)
        request, title = look.request, attention_map.title
        with self._lock, ablate_heads(self.model, [self._find_head(name) for name in request.disabled_heads]):
            if look.evidence is None:
                inputs = make_input(self.task, self.model, request.to_input())
                look.evidence = attribute_look_input(inputs, request.generation_config)
            maps = select_testable_maps(look.evidence)
            testable = next((one for one in maps if one.name == attention_map.name), None)
            if testable is None:
                raise UsageError(
                    f"{title} does not attend to input tokens, or is pooled, so deletion of tokens cannot test it."
                )
            if not 0 <= head < len(testable.heads):
                raise UsageError(f"{title} has {len(testable.heads)} heads, numbered from 0; got {head}.")
            result = measure_faithfulness(look.evidence, testable, head)
        scores = {"gradient_correlation": result.gradient_correlation, "deletion_score": result.deletion_score}
        return {"title": result.title, "label": result.label} | {k: None if v != v else v for k, v in scores.items()}

    def _check_files(self) -> None:
        """Raise `UsageError` if the weight files have changed since the model was loaded."""
        changed = [path for path, state in stat_files(self._file_states).items() if state != self._file_states[path]]
        if changed:
            raise UsageError(
                f"{changed[0]} has changed since the model was loaded, so its attention would be that of the old weights; "
                "restart saccade serve."
            )

    def _find_head(self, name: str) -> HeadRef:
        if name not in self.head_refs:
            raise UsageError(f"The model has no head {name!r} to ablate.")
        return self.head_refs[name]

    def _find_look(self, look_id: int) -> CachedLook:
        look = self._cached_looks.get(look_id)
        if look is None:
            raise LookExpired(f"Look {look_id} is no longer cached; request it again.")
        return look

    def _find_map(self, look_id: int, map_index: int) -> AttentionMap:
        maps = self._find_look(look_id).maps
        if not 0 <= map_index < len(maps):
            raise UsageError(f"Look {look_id} has {len(maps)} maps, numbered from 0; got {map_index}.")
        return maps[map_index]


def describe_head(name: str, head_ref: HeadRef) -> dict[str, Any]:
    return {"name": name, "side": head_ref.side, "kind": head_ref.kind, "layer": head_ref.layer, "head": head_ref.head}
