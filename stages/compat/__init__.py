"""The arithmetic of other libraries, for scores with the setting `compat`."""
