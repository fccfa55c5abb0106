"""Images: loading, pixels, augmentation, and the discrete autoencoder."""
