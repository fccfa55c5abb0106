"""The study `hard_vs_soft`: hard and soft attention of an image captioner."""
