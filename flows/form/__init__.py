"""A blind sheet as a page to label in: one file that opens from disk."""
