"""Pipeline and schedules files: read from YAML, checked, and put in order."""
