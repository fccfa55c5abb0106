"""The study `lengths`: translation with and without attention, by sentence length."""
