"""Worker processes that share the work of a run, on this machine or on a cluster."""
