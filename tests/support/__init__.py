"""Helpers shared by several tests: tiny runs, reference implementations, exports and tables of cases."""
