"""The interface of a task in five parts: its data, encoding, training, predictions and their presentation.

`Task` inherits from all five. The file of a task defines them in this order.
"""
