"""Pure functions on text. Nothing here knows of tables, stages or files."""
