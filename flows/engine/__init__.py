"""The engine: how a pipeline runs, where its rows are kept, and who lends its tools.

From the top: `noise` repeats runs; `running` makes a whole one, `report` and `findings` tell
of it; `planning` says what one would make; `steps` makes one step; `canaries`, `calibration`
and `labels` hold judges against people; `tools` lends what stages ask for: `llm`, and the
models of `embedding`, `entailment` and `cross_encoder`; `reader` takes samples in; `storage` keeps
the DuckDB file; `config` reads YAML; `workers` are other processes.
"""
