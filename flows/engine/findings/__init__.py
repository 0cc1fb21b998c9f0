"""What a run found, read back from the store."""
