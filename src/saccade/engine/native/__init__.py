"""Native operators of the engine: C++ sources, compilation, loading, and reference implementations in PyTorch."""
