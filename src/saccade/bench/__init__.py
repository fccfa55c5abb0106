"""`saccade bench`: the cost of attention mechanisms and the quality of quantized models."""
