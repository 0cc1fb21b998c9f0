"""The engine: how a pipeline runs, where its rows are kept, and who lends its tools.

From the top, where each part rests on those below it (import-linter holds it so):

- `noise` repeats a run to see how far scores vary.
- `running` makes a whole run; `report` gathers what a page says of one.
- `planning` says what a run would make and ask, `findings` what one found and whether it passes.
- `steps` makes the table of one step; `canaries` tries judges on pairs whose verdict is known.
- `tools` lends stages what they ask for; `calibration` holds judges against people.
- `prepare` checks all that can be checked before a run; `labels` is what people said.
- `llm` asks models behind endpoints, `reader` takes samples in, `sheets` lets people correct rows,
  `compare` holds two runs against each other, `audit_claims` looks at claims without judging them.
- `storage` keeps the DuckDB file and all that is remembered in it.
- `config` reads and checks what is written in YAML.
- `embedding`, `entailment` and `cross_encoder` are the models that run in this process (`models`
  holds those that come along), `workers` other processes, `object_storage` is S3.

Begin with `running/execute.py`, then `steps/runner.py`.
"""
