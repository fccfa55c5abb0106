"""What `load` and `new` hand out: a body, a head if there is one, and what is needed to write both down again."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from torch import Tensor, nn

from saccade.attention import Mechanism
from saccade.data import Batch, Text
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
    """What loading found: three lines for a person."""

    summary: str
    missing: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [
            f"loaded     {self.summary}",
            f"new        {abbreviate_names(self.missing)}",
            f"left over  {abbreviate_names(self.unexpected)}",
        ]
        return "\n".join(lines + self.notes)

    def _repr_html_(self) -> str:
        return html_text(str(self))


def abbreviate_names(names: Sequence[str]) -> str:
    """The first names of a list, and how many more there are."""
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "") or "nothing"


class Model(nn.Module):
    """A body and a head; `labels` name what a label or tag head tells apart, `multi_label` says that several hold at once."""

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
            self.labels = self.labels or default_labels(outputs)
            if len(self.labels) != outputs:
                raise ModelError(f"The head tells {outputs} labels apart; got {len(self.labels)} names.")
        self.tokenizer: Any = None
        self.pooling = Pooling()
        self.extra_tensors: dict[
            str, Tensor
        ] = {}  # published tensors that our body has no use for, to be written again
        self.special_token_ids: dict[str, Any] = {}  # of special tokens, as the published config.json names them
        self.generation_config: dict[str, Any] = {}  # generation_config.json, as it came
        self.kept_heads: dict[
            str, tuple[int, ...]
        ] = {}  # of attentions that heads were removed from, those that are left
        self.report = LoadReport("built, with new weights")

    @property
    def width(self) -> int:
        """The width of the vectors that the body computes."""
        return cast(Body, self.body).width

    @property
    def max_positions(self) -> int | None:
        """How many tokens it reads at most, where that is fixed."""
        places = [m.position for m in self.body.modules() if isinstance(m, Stack)]
        limits = [
            place.max_positions
            for place in places
            if place.max_positions is not None and not isinstance(place, LearnedGrid)
        ]
        return min(limits, default=None)  # the cells of a picture are no tokens

    @property
    def supports_packing(self) -> bool:
        """Whether a row that it reads may hold several texts which do not see each other (`Text.pack`)."""
        return self.capabilities.supports_packing and all(
            m.supports_packing for m in self.body.modules() if isinstance(m, Mechanism)
        )

    @property
    def capabilities(self) -> Capabilities:
        """What it can do, as its family declares it for its config."""
        return self.family.capabilities(self.config)

    @property
    def autoregressive_body(self) -> AutoregressiveBody:
        """The body of a model that generates; an encoder is refused by name."""
        if not self.capabilities.is_autoregressive:
            raise ModelError(f"{self.family.name} {self.capabilities.describe()}; it does not generate anything.")
        return cast(AutoregressiveBody, self.body)

    def forward(self, batch: Batch) -> Tensor:
        x = self.body(batch)
        keep = batch.source.keep if isinstance(batch.source, Text) else None
        return x if self.head is None else self.head(x, keep)

    def start(self, batch: Batch) -> tuple[State, Text]:
        return self.autoregressive_body.start(batch)

    def step(self, text: Text, state: State) -> Tensor:
        return self.autoregressive_body.step(text, state)

    def last_logits(self, text: Text, state: State) -> Tensor:
        """What `step` says after the last real token of each row, (B, V): of a prompt, no other score is needed."""
        body = self.autoregressive_body
        if self.capabilities.generates is Generates.IMAGE_CODES:  # what may follow depends on the token
            return text.gather_last(body.step(text, state))
        return body.head(text.gather_last(body.hidden_states(text, state)))

    def save(self, directory: str | Path) -> Path:
        """Write config, weights and tokenizer; where the family is published, in the published form."""
        from saccade.models.save import save  # which knows what a model is

        return save(self, Path(directory))
