"""What a pipeline file and a schedules file say: read, checked, and its steps put in order."""
