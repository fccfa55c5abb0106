"""The Python interface: train, open a run, predict, evaluate and generate; all of it is reached from `saccade` itself."""
