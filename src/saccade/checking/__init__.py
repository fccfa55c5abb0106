"""Invariants of attention, checked on any module: the tests, how a foreign module is called, and the report."""

from saccade.checking.check import CheckReport, Finding, check

__all__ = ["CheckReport", "Finding", "check"]
