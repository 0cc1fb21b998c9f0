"""Connect steps: resolve the names of their inputs, check kinds of rows, order the steps."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any, NamedTuple

from claimflow.flows.errors import Fault, one_of
from claimflow.flows.pipeline.schema import named_inputs
from claimflow.flows.pipeline.yaml_source import YamlSource
from claimflow.stages.base import Input, Stage
from claimflow.stages.registry import STAGES

Wires = Mapping[str, str | tuple[str, ...]]
"""Input of a stage -> the step that makes it; several steps for an input of many tables."""


@dataclass(frozen=True)
class Step:
    """A stage with settings, a name, and where its inputs come from.

    `judges` are the names of the language models that it asks; several vote.
    """

    name: str
    stage: Stage
    inputs: Wires
    judges: tuple[str, ...] = ()

    @property
    def needs(self) -> tuple[str, ...]:
        """The steps that this one reads from, `samples` included."""
        flat = [
            w for wire in self.inputs.values() for w in ([wire] if isinstance(wire, str) else wire)
        ]
        return tuple(dict.fromkeys(flat))

    def collect(self, get: Callable[[str, str], Any]) -> dict[str, Any]:
        """For each input what `get(input, step)` gives; by step for an input of many tables."""
        return {
            name: get(name, wire)
            if isinstance(wire, str)
            else {one: get(name, one) for one in wire}
            for name, wire in self.inputs.items()
        }


class WrittenStep(NamedTuple):
    """A step as the file has it; `kind` and `stage` are None where they are not valid.

    `written_as` is the step of the file that this one is a part of, if its name is another.
    """

    name: str
    kind: type[Stage] | None
    stage: Stage | None
    values: Mapping[str, Any]
    judges: tuple[str, ...] = ()
    written_as: str | None = None


class Wiring:
    """Connects the steps of one file; every mistake is added to `faults`."""

    def __init__(self, source: YamlSource, steps: Mapping[str, WrittenStep]) -> None:
        self._source = source
        self._steps = steps
        self.faults: list[Fault] = []

    def steps(self) -> tuple[Step, ...]:
        """The valid steps, in the order of the file as far as that order can run."""
        wires = {name: self._wires(step) for name, step in self._steps.items()}
        made = {
            name: Step(name, step.stage, wires[name], step.judges)
            for name, step in self._steps.items()
            if step.stage is not None
        }
        try:
            TopologicalSorter({name: step.needs for name, step in made.items()}).prepare()
        except CycleError as error:
            cycle = list(reversed(error.args[1]))
            place = self._source.place("steps", cycle[0])
            what = f"the steps depend on each other: {' -> '.join(cycle)}"
            self.faults.append(Fault(place, what, "let one of them read another table"))
            return ()
        return _in_order(made)

    def _wires(self, step: WrittenStep) -> Wires:
        if step.kind is None:
            return {}
        wires: dict[str, str | tuple[str, ...]] = {}
        if "samples" in step.kind.inputs:
            wires["samples"] = "samples"
        if step.kind.verdicts_by and step.stage:
            wires["verdicts"] = str(step.values["verdicts"])
        ignored = step.stage.ignores() if step.stage else frozenset(named_inputs(step.kind))
        for name, table in named_inputs(step.kind).items():
            targets = list(self._targets(step, name, table))
            for target in targets:
                self._check(step, name, table, target)
            if name in ignored:
                continue
            if targets:
                wires[name] = tuple(targets) if table.every else targets[0]
            elif name not in step.values and name not in step.kind.optional:
                self._missing(step, name, table)
        return wires

    def _targets(self, step: WrittenStep, name: str, table: Input) -> Iterator[str]:
        """The steps that an input is read from: those that the step names, or one of that name."""
        if name in step.values:
            given = step.values[name]
            for target in given if isinstance(given, list) else [given]:
                if not isinstance(target, str):
                    continue
                if target in self._steps:
                    yield target
                else:
                    makers = self._makers(table)
                    hint = one_of(target, makers) if makers else self._add_a_maker(table)
                    self._fault(step, name, f"there is no step {target!r}", hint)
        elif table.every:
            yield from self._makers(table)
        elif name in self._steps and (step.kind is None or name not in step.kind.optional):
            yield name

    def _check(self, step: WrittenStep, name: str, table: Input, target: str) -> None:
        kind = self._steps[target].kind
        if kind is None:
            return
        if kind.makes is not table.row:
            what = f"{target!r} makes {kind.makes.table}, not {table.row.table}"
            makers = self._makers(table)
            hint = f"name {_either(makers)}" if makers else self._add_a_maker(table)
            self._fault(step, name, what, hint)
            return
        if step.kind is None or self._steps[target].stage is None:
            return
        expects = step.stage.expected_inputs() if step.stage else step.kind.expects
        for setting, needed in expects.get(name, {}).items():
            # Either an input of the other step, which must come from the same step as ours, or
            # a setting of it, which must have that value.
            shared = setting in kind.inputs
            if not shared and setting not in kind.model_fields:
                continue  # A stage of another package, of which this cannot be told.
            wanted = step.values.get(needed, needed) if shared else needed
            default = setting if shared else kind.model_fields[setting].default
            found = self._steps[target].values.get(setting, default)
            if found != wanted:
                has = f"no {setting}" if found is None else f"{setting}: {found}"
                hint = f"name a step with {setting}: {wanted}"
                self._fault(step, name, f"{target!r} has {has}", hint)

    def _missing(self, step: WrittenStep, name: str, table: Input) -> None:
        what = f"{name!r} is missing: the step needs a table of {table.row.table}"
        makers = self._makers(table)
        hint = f"write {name}: {_either(makers)}" if makers else self._add_a_maker(table, name)
        self._fault(step, None, what, hint)

    def _add_a_maker(self, table: Input, name: str = "") -> str:
        """The hint where no step makes the rows of an input; `name` is what to call the step."""
        stages = [use for use, stage in STAGES.items() if stage.makes is table.row]
        named = f" {name}" if name else ""
        return f"add a step{named} that uses {_either(stages)}"

    def _makers(self, table: Input) -> list[str]:
        return [
            n for n, s in self._steps.items() if s.kind is not None and s.kind.makes is table.row
        ]

    def _fault(self, step: WrittenStep, name: str | None, what: str, hint: str) -> None:
        path = ("steps", step.written_as or step.name, *([name] if name else []))
        fault = Fault(self._source.place(*path), what, hint)
        # Both parts of a step may read the same input.
        if fault not in self.faults:
            self.faults.append(fault)


def _either(names: Sequence[str]) -> str:
    return " or ".join(names)


def _in_order(steps: dict[str, Step]) -> tuple[Step, ...]:
    """Repeatedly the first step of the file whose inputs come before it."""
    needs = {name: steps.keys() & step.needs for name, step in steps.items()}
    left = dict(steps)
    order = []
    while left:
        name = next(n for n in left if left.keys().isdisjoint(needs[n]))
        order.append(left.pop(name))
    return tuple(order)
