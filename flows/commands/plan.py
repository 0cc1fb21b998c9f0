"""`claimflow plan`: what a run would make and reuse, and what that would cost."""

from argparse import Namespace
from collections.abc import Iterator, Mapping
from decimal import Decimal

from rich import box
from rich.table import Table

from claimflow.flows.commands.answers import shown, standard_output
from claimflow.flows.commands.asked import asked_for
from claimflow.flows.judge.estimate import Estimate
from claimflow.flows.pipeline.models import Endpoint
from claimflow.flows.pipeline.pipeline import Pipeline
from claimflow.flows.report.text import counted
from claimflow.flows.runner.canaries import canary_estimates
from claimflow.flows.runner.embedded_models import to_fetch
from claimflow.flows.runner.estimate import estimate
from claimflow.flows.runner.plan import Planned, choose, plan
from claimflow.flows.runner.prepare import open_store, prepare


def main(options: Namespace) -> int:
    """Print what would become of each step, and what it would ask of endpoints."""
    rerun = asked_for(options)
    prepared = prepare(options.config, limit=options.limit, rerun=rerun, store=options.store)
    store = open_store(prepared, options.store)
    choice = choose(prepared, store, rerun)
    if choice.clean is not None:
        print(choice.nothing())
        return 0
    planned = plan(prepared, store, choice=choice)
    estimates = estimate(prepared, store, planned)
    tried = canary_estimates(prepared, store, choice.wanted)
    of_canaries = {f"canaries of {', '.join(steps)}": one for steps, one in tried.items()}
    console = standard_output()
    console.print(_table(planned, estimates, of_canaries))
    fetching = to_fetch(prepared.pipeline)
    if fetching:
        console.print(shown(fetching), soft_wrap=True)
    estimates |= of_canaries
    if estimates:
        lines = (total(estimates), *cascades(estimates), *beyond(prepared.pipeline, estimates))
        for line in lines:
            console.print(shown(line), soft_wrap=True)
    return 0


def _table(
    planned: list[Planned], estimates: Mapping[str, Estimate], canaries: Mapping[str, Estimate]
) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("step", "uses", "plan"):
        table.add_column(name, overflow="fold")
    if estimates or canaries:
        for name in ("calls", "tokens (in + out)", "cost (USD)"):
            table.add_column(name, justify="right", no_wrap=True)
    for step in planned:
        asked = _asked(estimates.get(step.step)) if estimates or canaries else ()
        table.add_row(step.step, step.stage, _words(step), *asked)
    for name, one in canaries.items():
        table.add_row(name, "verify_claims", "ask" if one.calls else "known", *_asked(one))
    return table


def _words(step: Planned) -> str:
    if step.artifact is not None:
        return f"reuse {step.artifact.row_count:,} rows"
    if step.below is not None:
        return f"reuse {step.below.row_count:,} rows, edited by hand"
    if step.waits_for:
        return f"waits for {', '.join(step.waits_for)}"
    if step.taken_over:
        return f"make, {counted(step.taken_over, 'sample')} taken over"
    return "make anew" if step.fresh else "make"


def _asked(estimate: Estimate | None) -> tuple[str, str, str]:
    if estimate is None:
        return "-", "-", "-"
    about = "about " if estimate.about else ""
    tokens = f"{_short(estimate.prompt_tokens)} + {_short(estimate.completion_tokens)}"
    cost = "-" if estimate.cost is None else _money(estimate.cost)
    return f"{about}{estimate.calls:,}", tokens, cost


def total(estimates: Mapping[str, Estimate]) -> str:
    """All of it in one line: calls, tokens, cost, and what need not be asked."""
    of_steps = estimates.values()
    calls, answers = sum(one.calls for one in of_steps), sum(one.answers for one in of_steps)
    known = f"; {counted(answers, 'answer')} {'is' if answers == 1 else 'are'} on file"
    told = known if answers else ""
    if not calls:
        return f"no calls{told}"
    guess = any(one.about for one in of_steps)
    tokens = sum(one.prompt_tokens + one.completion_tokens for one in of_steps)
    amounts = [counted(calls, "call"), f"{'' if guess else 'about '}{_short(tokens)} tokens"]
    costs = [one.cost for one in of_steps if one.cost is not None and one.calls]
    if costs:
        amounts.append(f"{_money(sum(costs, Decimal(0)))} USD")
    if any(one.cost is None for one in of_steps):
        amounts.append("and calls whose price nobody knows" if costs else "price unknown")
    return f"{'about ' if guess else ''}{', '.join(amounts)}{told}"


def cascades(estimates: Mapping[str, Estimate]) -> Iterator[str]:
    """A line for each cascade: who would judge, and which calls that saves."""
    for step, one in estimates.items():
        if one.cascade and sum(one.cascade[:3]):
            settled, referred, audited, saved = one.cascade
            about = "about " if one.about else ""
            verdicts = counted(settled + referred + audited, "verdict")
            yield (
                f"cascade of {step}: {about}{settled:,} of {verdicts} settled by the embedded "
                f"model, {referred:,} by the judge, {audited:,} audited by it; "
                f"{about}{counted(saved, 'call')} saved"
            )


def beyond(pipeline: Pipeline, estimates: Mapping[str, Estimate]) -> Iterator[str]:
    """A line for each endpoint whose budget would not suffice."""
    single = [part for one in estimates.values() for part in one.parts or (one,)]
    for who in dict.fromkeys(one.who for one in single):
        asked = [one for one in single if one.who == who]
        endpoint = pipeline.judges.get(who) or pipeline.embedder
        if not isinstance(endpoint, Endpoint):
            continue
        calls = sum(one.calls for one in asked)
        cost = sum((one.cost for one in asked if one.cost is not None), Decimal(0))
        limits = []
        if endpoint.budget_calls is not None and calls > endpoint.budget_calls:
            limits.append(f"{counted(endpoint.budget_calls, 'call')} (budget_calls)")
        if endpoint.budget_usd is not None and cost > Decimal(str(endpoint.budget_usd)):
            limits.append(f"{endpoint.budget_usd:g} USD (budget_usd)")
        if limits:
            rest = "the rest becomes rows that failed, not_asked"
            yield f"the budget of {who} would not suffice: {' and '.join(limits)}; {rest}"


def _short(tokens: int) -> str:
    return f"{tokens / 1_000_000:,.1f} M" if tokens >= 1_000_000 else f"{tokens:,}"


def _money(usd: Decimal) -> str:
    """With two digits that tell something: 0.83, 12.40, 0.0051."""
    digits = 2 if usd >= 1 or not usd else 1 - usd.adjusted()
    return f"{usd:,.{digits}f}"
