"""Answering for a model: audits of what it does to whom, statements of what only people know, the card, and the gate."""
