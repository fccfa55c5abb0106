"""Self-supervised pretraining on unlabeled data, with one of several objectives."""

from saccade.tasks.pretrain.task import OBJECTIVES, Pretrain

__all__ = ["OBJECTIVES", "Pretrain"]
