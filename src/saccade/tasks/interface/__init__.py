"""The interface of a task, by subject: its data, encoding, training, predictions, and how predictions are presented.

`Task` joins the five. The file of a task says them in this order, so that it reads from top to bottom as a description.
"""
