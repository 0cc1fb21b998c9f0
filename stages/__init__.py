"""What is computed: each stage takes tables and makes one table.

- `rows`, `tables`, `tools`, `base`, `prompts`: the vocabulary. Kinds of rows, tables of them, the
  tools that stages ask for, the base class `Stage`, and prompts with blanks. To write a stage, read
  `base`.
- `registry`: the built-in stages by their name in pipeline files.
- `decompose`, `citations`, `verify`, `similarity`, `lexical`: the stages that make claims,
  citations, verdicts, similarities and sentence matches. `judging` is how `decompose` and `verify`
  ask a language model, `claim_rules` decomposes without one, `sample_texts` are the texts that
  they compare with.
- `scores`: the stages that make scores and their summaries, and the arithmetic they share.
- `compat`: the numbers of other libraries where they differ from ours.
- `text`: functions on text alone, such as sentences, citation markers, BLEU and ROUGE.
"""
