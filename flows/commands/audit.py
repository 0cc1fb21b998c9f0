"""`claimflow audit`: what is wrong with the claims of a run, whatever the judges say of them."""

from argparse import Namespace

from rich.console import Console

from claimflow.flows.commands.answers import shown, standard_output
from claimflow.flows.commands.output import write_text
from claimflow.flows.commands.stores import read_store
from claimflow.flows.quality.claim_audit import ClaimAudit, as_json, audit_claims
from claimflow.flows.report.phrases import example_words, found_words, sample_words, step_words
from claimflow.flows.store.results import chosen_run


def main(options: Namespace) -> int:
    """Print what is wrong with the claims of each step, with examples; 0 whatever is found."""
    store = read_store(options)
    found = audit_claims(store, chosen_run(store, options.run), examples=options.limit)
    if options.format == "json":
        write_text(as_json(found), None)
    else:
        _print_audit(standard_output(), found)
    return 0


def _print_audit(console: Console, found: ClaimAudit) -> None:
    def say(words: str, style: str = "") -> None:
        console.print(shown(words, style), soft_wrap=True)

    say(f"run {found.run_id}: {sample_words(found)}")
    if not found.steps:
        say("no step of it makes claims")
    for step in found.steps:
        say(f"\n{step_words(step)}", style="bold")
        for one in step.checks:
            say(f"  {found_words(one)}")
            for example in one.examples:
                say(f"    {example.sample_id}: {example_words(one.check, example)}")
            if one.found > len(one.examples):
                say(f"    and {one.found - len(one.examples):,} more")
