"""Studies: questions about attention that are answered by measuring, each ending in a report with a plot."""
