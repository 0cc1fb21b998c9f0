"""Samples and canaries read from files of every format."""
