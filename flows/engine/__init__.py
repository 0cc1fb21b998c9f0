"""The engine: how a pipeline runs, where its rows are kept, and who lends its tools."""
