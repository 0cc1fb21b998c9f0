"""What may be said on the command line: each module declares the options of some commands."""
