"""rml: decodes language models from Hugging Face directories and GGUF files, and proves the numbers right."""
