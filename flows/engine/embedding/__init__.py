"""The encoder that runs in this process: texts to vectors."""
