"""Does anybody's attention module keep its word? The invariants, how foreign modules are called, and the report."""

from saccade.checking.check import Finding, Report, check

__all__ = ["Finding", "Report", "check"]
