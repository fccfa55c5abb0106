"""The Python API: train, open_run, predict, evaluate and generate, all available from `saccade` itself."""
