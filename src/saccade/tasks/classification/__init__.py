"""What the tasks that choose labels share: class weights of the loss, and the calibration of their probabilities."""
