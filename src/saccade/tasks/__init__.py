"""Tasks: what a model is trained for, and how it is scored. M families and N tasks meet in M + N files."""
