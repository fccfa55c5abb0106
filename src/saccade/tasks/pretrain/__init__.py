"""Pretraining: what a model learns from data that nobody has labelled, by one of several objectives."""

from saccade.tasks.pretrain.pretraining import OBJECTIVES, Pretrain

__all__ = ["OBJECTIVES", "Pretrain"]
