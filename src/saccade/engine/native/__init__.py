"""The compiled operators of the engine: their C++ source, building, loading, and a reference for each."""
