"""Model families, one short file each, and loading and saving of pretrained weights."""
