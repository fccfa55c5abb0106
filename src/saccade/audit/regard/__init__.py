"""Regard of generated text: prompts by demographic, a small classifier and a lexicon, and the differences between groups."""
