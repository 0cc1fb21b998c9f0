"""What a run would make and ask, found out before it does."""
