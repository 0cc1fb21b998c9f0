"""How stages ask a language model: claims, verdicts, votes, cascades."""
