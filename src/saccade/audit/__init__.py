"""Bias and fairness audits of a model, data and harm statements, the model card, and the release gate."""
