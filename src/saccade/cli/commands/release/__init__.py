"""Commands before a model is published: audits, the model card, the export."""
