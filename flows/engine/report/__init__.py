"""What a report says of a run, gathered from the store: plain objects that any page can show."""
