"""Tasks that read recordings, and what they share."""
