"""The audit suites, one for each kind of harm that is measured."""
