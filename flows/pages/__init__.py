"""What is said of a run and of two, in words and in Markdown, wherever it is shown."""
