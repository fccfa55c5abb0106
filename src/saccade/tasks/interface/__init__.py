"""What a task is, by subject: its data, their encoding, learning, answering, and how answers are presented.

`Task` joins the five. The file of a task says them in this order, so that it reads from top to bottom as a description.
"""
