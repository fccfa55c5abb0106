"""Attention maps as data and as plots."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from saccade.explain.ablate import parse_head as parse_head
    from saccade.explain.ablate import prune_heads as prune_heads
    from saccade.explain.ablate import zero_heads as zero_heads
    from saccade.explain.head_stats import LABEL_RULES as LABEL_RULES
    from saccade.explain.head_stats import compute_head_stats as compute_head_stats
    from saccade.explain.maps import AttentionMap as AttentionMap
    from saccade.explain.maps import AttentionMaps as AttentionMaps
    from saccade.explain.plots import save_attention_plot as save_attention_plot
    from saccade.explain.rollout import attention_flow as attention_flow
    from saccade.explain.rollout import attention_rollout as attention_rollout
    from saccade.explain.word_alignment import AlignmentHead as AlignmentHead
    from saccade.explain.word_alignment import align_words as align_words
    from saccade.explain.word_alignment import alignment_error_rate as alignment_error_rate
    from saccade.explain.word_alignment import choose_best_head as choose_best_head
    from saccade.explain.word_alignment import parse_pharaoh as parse_pharaoh

_MODULE_OF = {
    "AlignmentHead": "word_alignment",
    "AttentionMap": "maps",
    "AttentionMaps": "maps",
    "LABEL_RULES": "head_stats",
    "align_words": "word_alignment",
    "alignment_error_rate": "word_alignment",
    "attention_flow": "rollout",
    "attention_rollout": "rollout",
    "choose_best_head": "word_alignment",
    "compute_head_stats": "head_stats",
    "parse_head": "ablate",
    "parse_pharaoh": "word_alignment",
    "prune_heads": "ablate",
    "save_attention_plot": "plots",
    "zero_heads": "ablate",
}


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        return getattr(import_module(f"saccade.explain.{_MODULE_OF[name]}"), name)
    raise AttributeError(f"module 'saccade.explain' has no attribute {name!r}; it has {', '.join(sorted(_MODULE_OF))}")
