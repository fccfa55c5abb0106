"""The race of sentence encoders: the models of ONNX Runtime, and the process that each rival lives in."""
