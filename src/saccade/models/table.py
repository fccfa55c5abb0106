"""Every family of the package, in order: the table that tests and tools run over."""

from saccade.models import bert, gpt2
from saccade.models.family import Family

FAMILIES: list[Family] = [bert.FAMILY, gpt2.FAMILY]
