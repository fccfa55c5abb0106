"""Training that can be killed at any moment and resumes exactly where it stopped."""
