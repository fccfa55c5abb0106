"""Tests of the invariants of attention on any module: the tests, the detection of how a module is called, and the report."""

from saccade.checking.check import CheckReport, Finding, check

__all__ = ["CheckReport", "Finding", "check"]
