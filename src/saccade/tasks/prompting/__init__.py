"""Prompts, and few-shot classification with a language model, without training."""
