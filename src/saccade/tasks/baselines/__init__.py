"""The baselines of the tasks: the methods of `saccade.baselines`, fitted to examples, with the answers that a task scores."""
