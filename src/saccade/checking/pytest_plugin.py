"""pytest plugin: `pytest --saccade-plugin my_module.py` tests the contract of everything that a saccade plugin registers.

Each requirement of an entry is a test of its own, such as `my_module.py::mechanism tempered::formula`. The option may be
repeated; `-p saccade.checking.pytest_plugin` is needed only where saccade is not installed.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from saccade.plugins import REGISTRATIONS, load_plugin

if TYPE_CHECKING:
    from saccade.checking.check import Finding


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option --saccade-plugin."""
    parser.addoption(
        "--saccade-plugin",
        action="append",
        default=[],
        metavar="FILE|MODULE",
        help="test the contract of everything that this saccade plugin registers; may be repeated",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Load the plugins before tests are collected, so that these see their entries too."""
    for name in config.getoption("--saccade-plugin") or ():
        try:
            load_plugin(name)
        except ValueError as error:
            raise pytest.UsageError(str(error)) from error


def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Add a test for each requirement of each registered entry."""
    if not config.getoption("--saccade-plugin"):
        return
    contracts = [
        item
        for registration in REGISTRATIONS.values()
        for item in ContractCollector.from_parent(
            session, name=f"{registration.plugin}::{registration.kind} {registration.name}", registration=registration
        ).collect()
    ]
    items[:0] = contracts


class ContractCollector(pytest.Collector):
    """The requirements of one entry; the contract is tested once, when its first test runs."""

    def __init__(self, *, registration: Any, **arguments: Any):
        super().__init__(**arguments)
        self.registration = registration
        self.findings: dict[str, Finding] = {}

    def collect(self) -> Iterator["ContractItem"]:
        from saccade.checking.entries import REQUIREMENTS

        for requirement in REQUIREMENTS[self.registration.kind]:
            yield ContractItem.from_parent(self, name=requirement.name)

    def find(self, name: str) -> "Finding":
        from saccade.checking.entries import check_entry

        if not self.findings:
            report = check_entry(self.registration.kind, self.registration.name)
            self.findings = {finding.name: finding for finding in report.findings}
        return self.findings[name]


class ContractFailure(AssertionError):
    """A requirement that an entry does not meet."""


class ContractItem(pytest.Item):
    """One requirement of an entry."""

    def runtest(self) -> None:
        assert isinstance(self.parent, ContractCollector)
        finding = self.parent.find(self.name)
        if finding.status == "fails":
            deviation = "" if finding.deviation is None else f" (deviation {finding.deviation:.1e})"
            raise ContractFailure(f"{finding.message}{deviation}\n{finding.meaning} Common cause: {finding.cause}")
        if finding.status == "not applicable":
            pytest.skip(finding.message)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The message alone, for a requirement that is not met."""
        return (
            str(excinfo.value) if isinstance(excinfo.value, ContractFailure) else super().repr_failure(excinfo, style)
        )

    def reportinfo(self) -> tuple[Any, int | None, str]:
        """The place where the entry was registered, and the name of the requirement."""
        assert isinstance(self.parent, ContractCollector)
        file, _, line = self.parent.registration.location.rpartition(":")
        return file, int(line) - 1, f"{self.parent.registration.name}: {self.name}"
