"""How stages ask a language model.

`claims` asks for the claims of texts, `verdicts` for verdicts on claims; both halve a text that is
too long for one call. `votes` makes one verdict of several independent ones, `cascade` asks a
language model only where an entailment model is not sure.
"""
