"""`Model`: a body with an optional head, its config, labels and tokenizer; returned by `load` and `new`."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from torch import Tensor, nn

from saccade.attention import Mechanism
from saccade.data import Batch, Source, Text
from saccade.errors import ModelError
from saccade.models.capabilities import Capabilities, Generates
from saccade.models.family import AutoregressiveBody, Body, Family
from saccade.models.label_names import LABELED_HEADS, default_labels
from saccade.models.pooling import Pooling
from saccade.notebook import html_text
from saccade.parts.position import LearnedGrid
from saccade.parts.stack import Stack
from saccade.parts.state import State


@dataclass
class LoadReport:
    """The load report: what was loaded, which weights are new, which are unused, and notes."""

    summary: str
    missing: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [
            f"loaded     {self.summary}",
            f"new        {abbreviate_names(self.missing)}",
            f"unused     {abbreviate_names(self.unexpected)}",
        ]
        return "\n".join(lines + self.notes)

    def _repr_html_(self) -> str:
        return html_text(str(self))


def abbreviate_names(names: Sequence[str]) -> str:
    """The first six names of a list, and the number of the others."""
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "") or "nothing"


class Model(nn.Module):
    """A body and an optional head; `labels` are the label names of a label or tag head, `multi_label` allows several at once."""

    family: Family
    config: Any
    head_name: str | None
    body: nn.Module
    head: nn.Module | None
    multi_label: bool

    def __init__(
        self,
        family: Family,
        config: Any,
        body: nn.Module,
        head: nn.Module | None = None,
        head_name: str | None = None,
        *,
        labels: Sequence[str] = (),
        multi_label: bool = False,
    ):
        super().__init__()
        self.family, self.config, self.head_name = family, config, head_name
        self.body, self.head = body, head
        self.labels, self.multi_label = tuple(labels), multi_label
        if head_name in LABELED_HEADS:
            outputs = int(self.get_submodule("head.score").out_features)  # type: ignore[arg-type]
            self.labels: tuple[str, ...] = self.labels or default_labels(outputs)
            if len(self.labels) != outputs:
                raise ModelError(f"The head has {outputs} outputs; got {len(self.labels)} label names.")
        self.thresholds: dict[str, float] = {}  # decision threshold of each label (multi-label); the default is 0.5
        self.tokenizer: Any = None
        self.pooling: Pooling = Pooling()
        self.extra_tensors: dict[str, Tensor] = {}  # published tensors that the body does not use, kept for saving
        self.special_token_ids: dict[str, Any] = {}  # from the published config.json
        self.generation_config: dict[str, Any] = {}  # the published generation_config.json
        self.kept_heads: dict[str, tuple[int, ...]] = {}  # the remaining heads of each pruned attention
        self.report: LoadReport = LoadReport("a new model, randomly initialized")

    @property
    def width(self) -> int:
        """The width of the hidden states."""
        return cast(Body, self.body).width

    @property
    def max_positions(self) -> int | None:
        """Maximum number of tokens; None if there is no limit."""
        positions = [m.position for m in self.body.modules() if isinstance(m, Stack)]
        text_positions = [position for position in positions if not isinstance(position, LearnedGrid)]  # not of images
        return min((p.max_positions for p in text_positions if p.max_positions is not None), default=None)

    @property
    def supports_packing(self) -> bool:
        """Whether an input row may hold several texts that do not attend to each other (`Text.pack`)."""
        return self.capabilities.supports_packing and all(
            m.supports_packing for m in self.body.modules() if isinstance(m, Mechanism)
        )

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities that the family declares for this config."""
        return self.family.capabilities(self.config)

    @property
    def autoregressive_body(self) -> AutoregressiveBody:
        """The body of an autoregressive model; raises ModelError for an encoder."""
        if not self.capabilities.is_autoregressive:
            raise ModelError(f"{self.family.name} {self.capabilities.describe()}; it does not generate.")
        return cast(AutoregressiveBody, self.body)

    def encode(self, batch: Batch) -> Tensor:
        """The hidden states (B, L, W) of the body, before the head."""
        return self.body(batch)

    def embed_tokens(self, token_ids: Sequence[Sequence[int]], segment_ids: Sequence[Sequence[int]]) -> Tensor:
        """One sentence embedding per text, (B, W), pooled as the model's files say."""
        text = Text.pad(token_ids, segment_ids=segment_ids).to(next(self.parameters()).device)
        return self.pooling(self.encode(Batch(text)), text.keep)

    def forward(self, batch: Batch) -> Tensor:
        x = self.encode(batch)
        return x if self.head is None else self.head(x, self.output_keep(batch.source))

    def output_keep(self, source: Source) -> Tensor | None:
        """The padding mask of the hidden states of a source, (B, L); None if none of them is padding."""
        return None if source.keep is None else source.keep[:, :: self.capabilities.stride]

    def start(self, batch: Batch) -> tuple[State, Text]:
        return self.autoregressive_body.start(batch)

    def step(self, text: Text, state: State) -> Tensor:
        return self.autoregressive_body.step(text, state)

    def last_logits(self, text: Text, state: State) -> Tensor:
        """The logits after the last real token of each row, (B, V): the only ones of a prompt that generation needs."""
        body = self.autoregressive_body
        if self.capabilities.generates is Generates.IMAGE_CODES:  # the allowed codes depend on the token
            return text.gather_last(body.step(text, state))
        return body.head(text.gather_last(body.hidden_states(text, state)))

    def save(self, directory: str | Path) -> Path:
        """Save config, weights and tokenizer, in the published form if the family has one."""
        from saccade.models.save import save  # here, since it imports this module

        return save(self, Path(directory))
