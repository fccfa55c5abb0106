"""Compiled kernels of encoders: matrix products and whole encoders in int8, bfloat16 and float32, with AVX-512 or without."""
