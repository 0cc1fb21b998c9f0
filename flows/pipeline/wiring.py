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
        # Name of a step that is not there -> the steps that need it.
        self._absent: dict[str, list[_Need]] = {}
        self.faults: list[Fault] = []

    def steps(self) -> tuple[Step, ...]:
        """The valid steps, in the order of the file as far as that order can run."""
        wires = {name: self._wires(step) for name, step in self._steps.items()}
        self.faults += [self._absent_fault(name, needs) for name, needs in self._absent.items()]
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
            if name in ignored and name not in step.values:
                continue  # A step of that name may be any other.
            targets = list(self._targets(step, name, table))
            for target in targets:
                self._check(step, name, table, target)
            if name in ignored:
                continue
            if targets:
                wires[name] = tuple(targets) if table.every else targets[0]
            elif name not in {*step.values, *step.kind.optional} and not (
                # A step whose stage is not known may be the one.
                table.every and any(other.kind is None for other in self._steps.values())
            ):
                self._absent.setdefault(name, []).append(_Need(step, name, table))
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
                    self._absent.setdefault(target, []).append(_Need(step, name, table))
        elif table.every:
            yield from self._steps_that_make(table)
        elif name in self._steps and (step.kind is None or name not in step.kind.optional):
            yield name

    def _check(self, step: WrittenStep, name: str, table: Input, target: str) -> None:
        kind = self._steps[target].kind
        if kind is not None and kind.makes is not table.row:
            what = f"{target!r} makes {kind.makes.table}, not {table.row.table}"
            makers = self._makers(step, name, table)
            hint = f"name {_either(makers)}" if makers else _add_a_maker(table)
            self._fault(step, name, what, hint)
            return
        for setting, wanted, found in self._unexpected(step, name, target):
            has = f"no {setting}" if found is None else f"{setting}: {found}"
            hint = f"name a step with {setting}: {wanted}"
            self._fault(step, name, f"{target!r} has {has}", hint)

    def _unexpected(
        self, step: WrittenStep, name: str, target: str
    ) -> Iterator[tuple[str, Any, Any]]:
        """(setting, expected value, value) of what the step `target` must be like, but is not."""
        kind, values = self._steps[target].kind, self._steps[target].values
        if kind is None or step.kind is None or self._steps[target].stage is None:
            return
        expects = step.stage.expected_inputs() if step.stage else step.kind.expects
        for setting, needed in expects.get(name, {}).items():
            # Either an input of the other step, which must come from the same step as ours, or
            # a setting of it, which must have that value.
            shared = setting in kind.inputs
            wanted = needed if isinstance(needed, tuple) else (needed,)
            if shared:
                wanted = tuple(step.values.get(name, name) for name in wanted)
            default = setting if shared else kind.model_fields[setting].default
            found = values.get(setting, default)
            # A step that is not there is a mistake of its own.
            if found not in wanted and not (shared and found not in self._steps):
                yield setting, _either(wanted), found

    def _absent_fault(self, name: str, needs: Sequence["_Need"]) -> Fault:
        """The fault for a step that is not there; its hint suits all steps that need it."""
        step, wire, table = needs[0]
        fitting = [set(self._makers(*need)) for need in needs]
        makers = [one for one in self._makers(step, wire, table) if all(one in f for f in fitting)]
        if wire in step.values:
            what, path = f"there is no step {name!r}", _path(step, wire)
            hint = one_of(name, makers)
        else:
            what, path = f"{name!r} is missing", _path(step)
            what += f": the step needs a table of {table.row.table}"
            hint = f"write {wire}: {_either(makers)}"
        paths = [
            _path(need.step, *([need.wire] if need.wire in need.step.values else []))
            for need in needs
        ]
        others = [".".join(other) for other in dict.fromkeys(paths) if other != path]
        what += f" (likewise {', '.join(others)})" if others else ""
        return Fault(self._source.place(*path), what, hint if makers else _add_a_maker(table, name))

    def _makers(self, step: WrittenStep, name: str, table: Input) -> list[str]:
        """The steps that an input can be read from."""
        makers = self._steps_that_make(table)
        return [one for one in makers if not any(self._unexpected(step, name, one))]

    def _steps_that_make(self, table: Input) -> list[str]:
        return [
            n for n, s in self._steps.items() if s.kind is not None and s.kind.makes is table.row
        ]

    def _fault(self, step: WrittenStep, wire: str, what: str, hint: str) -> None:
        fault = Fault(self._source.place(*_path(step, wire)), what, hint)
        # Both parts of a step may read the same input.
        if fault not in self.faults:
            self.faults.append(fault)


class _Need(NamedTuple):
    """A step, one of its inputs, and what that input must be."""

    step: WrittenStep
    wire: str
    table: Input


def _path(step: WrittenStep, *wire: str) -> tuple[str, ...]:
    """Where the file has a step, or one of its inputs."""
    return ("steps", step.written_as or step.name, *wire)


def _add_a_maker(table: Input, name: str = "") -> str:
    """The hint where no step makes the rows of an input; `name` is what to call the step."""
    stages = [use for use, stage in STAGES.items() if stage.makes is table.row]
    return f"add a step{name and ' '}{name} that uses {_either(stages)}"


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
