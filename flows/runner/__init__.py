"""Running a pipeline: prepare, plan, execute, reuse."""
