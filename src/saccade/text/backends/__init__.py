"""Tokenizer backends: Hugging Face tokenizers and SentencePiece."""
