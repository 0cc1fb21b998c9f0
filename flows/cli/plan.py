"""`claimflow plan`, `doctor` and `prompt`: cost, judges and prompts checked before a run."""

from argparse import Namespace
from collections import Counter
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Final

from claimflow.flows.cli.data_file import add_pipeline_or_data, prepare_file
from claimflow.flows.cli.options import (
    Commands,
    add_command,
    add_group,
    add_rerun_options,
)
from claimflow.flows.errors import JudgeError
from claimflow.flows.report.formatting import format_count

if TYPE_CHECKING:
    from claimflow.flows.judge.estimate import Estimate
    from claimflow.flows.pipeline.pipeline import Pipeline
    from claimflow.flows.report.terminal import Terminal
    from claimflow.flows.runner.plan import PlannedStep
    from claimflow.flows.store.store import Store


_SHOWN_STEPS: Final = 3
"""Steps that a step waits for which are named."""


def add(commands: Commands) -> None:
    """Declare `plan`, `doctor` and `prompt`."""
    parser = add_command(
        commands,
        "plan",
        plan,
        "show the tables, model calls and cost of a run before it is made",
        example="configs/quickstart.yaml",
    )
    add_pipeline_or_data(parser)
    add_rerun_options(parser)
    parser.add_argument(
        "--batch", action="store_true", help="as if the pipeline sent its calls in batches"
    )

    parser = add_command(
        commands,
        "doctor",
        doctor,
        "test each judge of a pipeline with three small requests",
        example="configs/llm/quickstart.yaml",
    )
    parser.add_argument("config", type=Path, metavar="PIPELINE", help="a pipeline's YAML file")

    actions = add_group(commands, "prompt", "check a prompt file for a language model")
    parser = add_command(
        actions,
        "check",
        check_prompt_file,
        "show the messages that a model would read, and warnings",
        example="configs/prompts/verify.md",
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="a prompt file")


def plan(options: Namespace) -> int:
    """Print what a run would do with each step, and what it would ask of endpoints."""
    from claimflow.flows.judge.shared_ledger import open_shared_ledger
    from claimflow.flows.pipeline.rerun import Rerun
    from claimflow.flows.report.run_text import partial_run_text, untaught_text
    from claimflow.flows.report.terminal import Terminal
    from claimflow.flows.runner import plan as planning
    from claimflow.flows.runner.canaries import canary_estimates
    from claimflow.flows.runner.embedded_models import missing_model
    from claimflow.flows.runner.estimate import estimate
    from claimflow.flows.runner.languages import planned_untaught
    from claimflow.flows.runner.prepare import in_batches

    rerun = Rerun.of(options)
    prepared = prepare_file(options, rerun).prepared
    if options.batch:
        prepared = in_batches(prepared)
    store = prepared.store
    choice = planning.choose(prepared, store, rerun)
    if choice.nothing_to_do is not None:
        print(choice.nothing_to_do)
        return 0
    planned = planning.plan(prepared, store, choice=choice)
    pipeline = prepared.pipeline
    with open_shared_ledger(pipeline.ledger, pipeline.source.place("ledger")) as shared:
        estimates = estimate(prepared, store, planned, shared)
        tried = canary_estimates(prepared, store, choice.wanted, shared)
    canaries = {f"canaries of {', '.join(steps)}": one for steps, one in tried.items()}
    terminal = Terminal()
    samples = planning.plan_samples(prepared, store)
    _print_plan(terminal, [samples, *planned], estimates, canaries)
    selection = planning.coverage(prepared, choice, rerun).selection
    if selection:
        terminal.print_line(partial_run_text(selection))
    untaught = planned_untaught(prepared, store, choice, samples.artifact)
    if untaught:
        terminal.print_line(untaught_text(untaught), "bold")
    downloads = missing_model(prepared.pipeline)
    if downloads:
        terminal.print_line(downloads)
    estimates |= canaries
    if estimates:
        terminal.print_line(total_line(estimates))
        for line in (
            *_sharing_lines(estimates),
            *_batch_lines(prepared.pipeline, estimates),
            *_cascade_lines(estimates),
            *budget_lines(prepared.pipeline, estimates),
            *_address_lines(prepared.pipeline, estimates, store),
        ):
            terminal.print_line(line)
    return 0


def _print_plan(
    terminal: "Terminal",
    planned: "list[PlannedStep]",
    estimates: "Mapping[str, Estimate]",
    canaries: "Mapping[str, Estimate]",
) -> None:
    costs = ["calls", "tokens (in + out)", "cost (USD)"] if estimates or canaries else []
    rows = [
        [step.step, step.stage, _action(step), *_cost_cells(estimates.get(step.step))]
        for step in planned
    ]
    for name, one in canaries.items():
        rows.append([name, "verify_claims", "ask" if one.calls else "known", *_cost_cells(one)])
    columns = ["step", "uses", "plan", *costs]
    terminal.print_table(
        columns,
        [row[: len(columns)] for row in rows],
        right=costs,
        texts=("plan",),
        drop=("uses", "tokens (in + out)", "cost (USD)"),
    )


def _action(step: "PlannedStep") -> str:
    if step.artifact is not None:
        return f"reuse {step.artifact.row_count:,} rows"
    if step.below is not None:
        return f"reuse {step.below.row_count:,} rows, edited by hand"
    if step.waits_for:
        shown = [*step.waits_for]
        if len(shown) > _SHOWN_STEPS:
            shown = [*shown[: _SHOWN_STEPS - 1], f"{len(shown) - _SHOWN_STEPS + 1} more steps"]
        return f"waits for {', '.join(shown)}"
    if step.reused_samples:
        return f"make, {format_count(step.reused_samples, 'sample')} reused"
    return "make, ask again" if step.fresh else "make"


def _cost_cells(estimate: "Estimate | None") -> tuple[str, str, str]:
    if estimate is None:
        return "-", "-", "-"
    about = "about " if estimate.about else ""
    sent, received = estimate.prompt_tokens, estimate.completion_tokens
    tokens = f"{_format_tokens(sent)} + {_format_tokens(received)}"
    cost = "-" if estimate.cost is None else _format_usd(estimate.cost)
    return f"{about}{estimate.calls:,}", tokens, cost


def total_line(estimates: "Mapping[str, Estimate]") -> str:
    """Calls, tokens and cost of all estimates, and how many answers the ledger already has."""
    of_steps = estimates.values()
    calls, answers = sum(one.calls for one in of_steps), sum(one.answers for one in of_steps)
    known = f"; {format_count(answers, 'answer')} {'is' if answers == 1 else 'are'} on file"
    recorded = known if answers else ""
    if not calls:
        return f"no calls{recorded}"
    guess = any(one.about for one in of_steps)
    tokens = sum(one.prompt_tokens + one.completion_tokens for one in of_steps)
    amounts = [
        format_count(calls, "call"),
        f"{'' if guess else 'about '}{_format_tokens(tokens)} tokens",
    ]
    costs = [one.cost for one in of_steps if one.cost is not None and one.calls]
    if costs:
        amounts.append(f"{_format_usd(sum(costs, Decimal(0)))} USD")
    if any(one.cost is None for one in of_steps):
        amounts.append("and calls of unknown price" if costs else "price unknown")
    return f"{'about ' if guess else ''}{', '.join(amounts)}{recorded}"


def _sharing_lines(estimates: "Mapping[str, Estimate]") -> Iterator[str]:
    """A line for each group of steps that share calls; a call is counted for one of them."""
    groups: list[set[str]] = []
    for step, one in estimates.items():
        if one.shared_with:
            joined = {step, *one.shared_with}
            apart = [group for group in groups if group.isdisjoint(joined)]
            groups = [*apart, joined.union(*(group for group in groups if group not in apart))]
    for group in groups:
        *others, last = (step for step in estimates if step in group)
        yield f"{', '.join(others)} and {last} share calls"


def _batch_lines(pipeline: "Pipeline", estimates: "Mapping[str, Estimate]") -> Iterator[str]:
    """A line on the price of the calls of judges in batches, which the other lines leave out."""
    from claimflow.flows.judge.litellm_settings import BATCH_PROVIDERS
    from claimflow.flows.judge.provider import BATCH_SHARE

    costs: dict[bool, Decimal] = {}
    unknown = any(one.calls and one.cost is None for one in estimates.values())
    further = ", and calls of unknown price" if unknown else ""
    faults = _batch_faults(pipeline, estimates)
    submitted = sum(one.submitted for one in estimates.values())
    if submitted:
        calls = format_count(submitted, "call")
        are = "is" if submitted == 1 else "are"
        reserved = [one.reserved for one in estimates.values() if one.reserved is not None]
        paid = f", for about {_format_usd(sum(reserved, Decimal(0)))} USD"
        paid = paid if len(reserved) == len(estimates) else ""
        yield f"{calls} more {are} in batches that have not ended, which a run waits for{paid}"
    few = _too_few_for_a_batch(pipeline, estimates)
    for who, fewest in few.items():
        yield f"a batch of {who} has at least {fewest} calls: --batch sends fewer at once"
    for one in estimates.values():
        for part in one.parts or (one,):
            judge = pipeline.judges.get(part.who)
            # As in the line of the whole price, a step counts if all its calls have a price.
            if judge is None or not part.calls or part.cost is None or one.cost is None:
                continue
            if part.who in few or part.who in faults:
                continue
            known = judge.model.partition("/")[0] in BATCH_PROVIDERS
            if judge.batch or (known and judge.api_base is None):
                costs[judge.batch] = costs.get(judge.batch, Decimal(0)) + part.cost * BATCH_SHARE
    if costs.get(True):
        cost = f"{_format_usd(costs[True])} USD{further}"
        yield f"in batches: {cost}, each batch within a day"
    if costs.get(False):
        yield f"with --batch: {_format_usd(costs[False])} USD{further}, each batch within a day"
    yield from faults.values()


def _batch_faults(pipeline: "Pipeline", estimates: "Mapping[str, Estimate]") -> dict[str, str]:
    """A line for each judge whose calls cannot go into batches, by its name.

    Of a judge that is not to send batches it is about what a cloud lacks for them.
    """
    from claimflow.flows.judge.cloud_batches import cloud_terms
    from claimflow.flows.judge.provider import open_provider
    from claimflow.flows.judge.provider_errors import batch_fault

    lines = {}
    asked = {part.who for part in _by_endpoint(estimates) if part.calls}
    for who, judge in pipeline.judges.items():
        if who not in asked:
            continue
        provider, _, model = judge.model.partition("/")
        if judge.batch:
            wrong = batch_fault(judge, open_provider(judge.provider))
            if wrong:
                lines[who] = f"{who}: {': '.join(wrong)}"
        # litellm, which takes seconds to import, is not asked for this.
        elif provider in ("vertex_ai", "bedrock") and judge.api_base is None:
            terms = cloud_terms(provider, model)
            if terms and terms.missing:
                lines[who] = f"--batch cannot be used for {who}: {terms.missing}"
    return lines


def _too_few_for_a_batch(
    pipeline: "Pipeline", estimates: "Mapping[str, Estimate]"
) -> dict[str, int]:
    """The judges with fewer calls than a batch of theirs has at least, and that number."""
    from claimflow.flows.judge.cloud_batches import fewest_in_batch

    calls: Counter[str] = Counter()
    for part in _by_endpoint(estimates):
        calls[part.who] += part.calls
    fewest = {who: fewest_in_batch(judge.model) for who, judge in pipeline.judges.items()}
    return {who: least for who, least in fewest.items() if 0 < calls[who] < least}


def _by_endpoint(estimates: "Mapping[str, Estimate]") -> "list[Estimate]":
    """The estimates of the steps, those of several endpoints in their parts."""
    return [part for one in estimates.values() for part in one.parts or (one,)]


def _cascade_lines(estimates: "Mapping[str, Estimate]") -> Iterator[str]:
    """A line for each cascade: which model would judge how much, and how many calls that saves."""
    for step, one in estimates.items():
        if one.cascade and sum(one.cascade[:3]):
            settled, referred, audited, saved = one.cascade
            about = "about " if one.about else ""
            verdicts = format_count(settled + referred + audited, "verdict")
            yield (
                f"cascade of {step}: {about}{settled:,} of {verdicts} settled by the embedded "
                f"model, {referred:,} by the judge, {audited:,} audited by it; "
                f"up to {format_count(saved, 'call')} saved"
            )


def _address_lines(
    pipeline: "Pipeline", estimates: "Mapping[str, Estimate]", store: "Store"
) -> Iterator[str]:
    """A line for each endpoint whose earlier calls went elsewhere."""
    from claimflow.flows.judge.call_statistics import only_asked_elsewhere
    from claimflow.flows.judge.provider import endpoint_identity

    single = _by_endpoint(estimates)
    for who in sorted({one.who for one in single if one.calls and one.who}):
        model = pipeline.endpoints[who].model
        api_base = endpoint_identity(pipeline.endpoints[who])["api_base"]
        if only_asked_elsewhere(store, model, api_base):
            address = api_base or "the provider's own address"
            yield f"{who}: no reply on file is of {model} at {address}, so none is reused"


def budget_lines(pipeline: "Pipeline", estimates: "Mapping[str, Estimate]") -> Iterator[str]:
    """A line for each endpoint whose budget would not suffice."""
    from claimflow.flows.judge.provider import BATCH_SHARE
    from claimflow.flows.pipeline.model_settings import Judge

    single = _by_endpoint(estimates)
    for who, endpoint in pipeline.endpoints.items():
        of_endpoint = [one for one in single if one.who == who]
        calls = sum(one.calls for one in of_endpoint)
        cost = sum((one.cost for one in of_endpoint if one.cost is not None), Decimal(0))
        if isinstance(endpoint, Judge) and endpoint.batch:
            cost *= BATCH_SHARE
        limits = []
        if endpoint.budget_calls is not None and calls > endpoint.budget_calls:
            limits.append(f"{format_count(endpoint.budget_calls, 'call')} (budget_calls)")
        if endpoint.budget_usd is not None and cost > Decimal(str(endpoint.budget_usd)):
            limits.append(f"{endpoint.budget_usd:g} USD (budget_usd)")
        if limits:
            rest = "the rest becomes rows that failed, not_asked"
            yield f"the budget of {who} would not suffice: {' and '.join(limits)}; {rest}"


def _format_tokens(tokens: int) -> str:
    return f"{tokens / 1_000_000:,.1f} M" if tokens >= 1_000_000 else f"{tokens:,}"


def _format_usd(usd: Decimal) -> str:
    """With two significant digits below 1 USD, else with cents: 0.83, 12.40, 0.0051."""
    digits = 2 if usd >= 1 or not usd else 1 - usd.adjusted()
    return f"{usd:,.{digits}f}"


def doctor(options: Namespace) -> int:
    """Test each endpoint of a pipeline with small requests and print what was found.

    Reads no samples and stores nothing. Raises `JudgeError` when an endpoint cannot be used, and
    `InputError` when the shared ledger cannot.
    """
    from claimflow.flows.judge.doctor import examine
    from claimflow.flows.judge.provider import endpoint_identity
    from claimflow.flows.judge.shared_ledger import open_shared_ledger
    from claimflow.flows.pipeline.model_settings import DEFAULT_JUDGE, EMBEDDER
    from claimflow.flows.pipeline.pipeline import build_pipeline
    from claimflow.flows.pipeline.yaml_source import load_yaml
    from claimflow.flows.report.terminal import Terminal

    pipeline = build_pipeline(load_yaml(options.config))
    endpoints = {
        name if name in (DEFAULT_JUDGE, EMBEDDER) else f"judge {name}": endpoint
        for name, endpoint in pipeline.endpoints.items()
    }
    if not endpoints:
        print("this pipeline asks no endpoint: its judge and its encoder run in this process")
        return 0
    with open_shared_ledger(pipeline.ledger, pipeline.source.place("ledger")):
        pass
    addresses = {who: endpoint_identity(one)["api_base"] for who, one in endpoints.items()}
    examined = examine(endpoints)
    terminal = Terminal()
    for who, endpoint in endpoints.items():
        address = f" at {addresses[who]}" if addresses[who] else ""
        terminal.print_line(f"{who}: {endpoint.model}{address}", "bold")
        width = max(map(len, examined[who].found))
        for topic, finding in examined[who].found.items():
            terminal.print_line(f"  {topic:{width}}  {finding}")
        terminal.print()
    if pipeline.ledger is not None:
        terminal.print_line(f"shared ledger at {pipeline.ledger}", "bold")
        terminal.print_line("  answers")
        terminal.print()
    faults = {who: one.fault for who, one in examined.items() if one.fault is not None}
    if faults:
        raise JudgeError("; ".join(f"{who} cannot be used: {why}" for who, why in faults.items()))
    return 0


def check_prompt_file(options: Namespace) -> int:
    """Print the messages that a prompt file makes of an example, and warnings."""
    from claimflow.flows.judge.prompt_check import check_prompt
    from claimflow.flows.report.terminal import Terminal

    checked = check_prompt(options.file)
    terminal = Terminal()
    terminal.print_line(f"{options.file}: a prompt for {checked.use}", "bold")
    headings = {
        "system": "system message, the same in every call",
        "user": "user message, with an example",
    }
    for role, content, tokens in checked.messages:
        heading = f"--- {headings[role]}: about {tokens:,} tokens ---"
        terminal.print_line(f"\n{heading}\n", "bold")
        terminal.print_line(content.rstrip("\n"))
    for warning in checked.warnings:
        terminal.print_line(f"\nwarning: {warning}", "yellow")
    if not checked.warnings:
        terminal.print_line(f"\n{options.file}: OK, no warnings")
    return 0
