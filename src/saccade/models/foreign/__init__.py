"""Weights in formats of other programs: llama2.c and Marian."""
