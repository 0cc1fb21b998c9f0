"""One step of a run: found on file, or made, part by part and only as far as it changed."""
