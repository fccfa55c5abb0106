"""A trained run: its stored config, its data, and `open_run`."""
