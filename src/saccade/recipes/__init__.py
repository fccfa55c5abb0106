"""Recipes: training settings for a dataset with the score they promise, and the records that show it."""
