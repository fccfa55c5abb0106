"""Loading of untrusted tokenizer directories: every file is checked before it is used."""
