"""Sound: loading of recordings, resampling, log-mel spectrograms as Whisper computes them, and augmentation; knows no model."""
