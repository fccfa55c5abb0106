"""Benchmark of sentence encoders: export to ONNX, and the worker process of each engine."""
