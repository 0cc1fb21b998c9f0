"""When, where and how stages run: command line, Prefect, runner, judges, store."""
