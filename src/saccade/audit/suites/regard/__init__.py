"""Regard of generated text: prompts by demographic group, a small classifier and a lexicon, and differences between groups."""
