"""Functions on text: sentences, tokens, overlap, n-grams. No tables, stages or files."""
