"""Options of a run: which steps (--again, --only, --from, --failed) and samples it makes."""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import combinations
from typing import Final, NamedTuple, Self

from claimflow.flows.errors import Fault, InputError, one_of
from claimflow.flows.pipeline.pipeline import Pipeline, valid_section
from claimflow.flows.pipeline.sample_choice import LAST_RUN
from claimflow.flows.pipeline.schema import SamplesSource
from claimflow.flows.pipeline.wiring import Step

_CHOOSE: Final = "choose one of them"

MAX_PARTS: Final = 1_000
"""Parts that samples can be divided into."""


class Part(NamedTuple):
    """One of `of` disjoint parts of the samples; `number` is from 1."""

    number: int
    of: int

    @classmethod
    def named(cls, text: str) -> Self:
        """The part that `text` names, as in "2/4". Raises `InputError`."""
        found = re.fullmatch(r"([0-9]{1,4})/([0-9]{1,4})", text)
        part = cls(int(found[1]), int(found[2])) if found else None
        if part is None or not 1 <= part.number <= part.of <= MAX_PARTS:
            hint = f"write K/N, as in 2/4, with K from 1 to N and N at most {MAX_PARTS:,}"
            raise InputError([Fault("--part", f"{text[:40]!r} is no part", hint)])
        return part

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"


class Rerun(NamedTuple):
    """Which part of a pipeline to run; all of it by default.

    `again` names steps to make although their tables are stored. `fresh` asks models again, for
    those steps or for all steps of the run. `only` names the steps to run; `from_step` selects a
    step and those that depend on it; `failed` selects the steps whose newest table has failed
    rows and those that depend on them. `samples` selects samples: a file of their ids, or a
    SELECT on the store. `skip_unusable` leaves out samples that cannot be used. `part` names a
    `Part` of the samples, for one of several machines.
    """

    again: Sequence[str] = ()
    fresh: bool = False
    only: Sequence[str] = ()
    from_step: str | None = None
    failed: bool = False
    samples: str | None = None
    skip_unusable: bool = False
    part: str | None = None

    @classmethod
    def of(cls, options: object) -> "Rerun":
        """The options of a command, or the parameters of a deployment, that have these names."""
        return cls(*(getattr(options, name) for name in cls._fields))

    def scope(self) -> str | None:
        """The option that selects the steps of the run, if there is one."""
        return next(iter(self._scopes()), None)

    def selection(self) -> str | None:
        """The option that selects the steps and its value, as in `--only faithfulness`."""
        names = {"--only": self.only, "--from": [self.from_step], "--failed": ()}
        return next((" ".join([one, *map(str, names[one])]) for one in self._scopes()), None)

    def clashes(self, *, limit: int | None) -> Iterator[Fault]:
        """A fault for each pair of options that exclude each other."""
        for one, other in combinations(self._scopes(), 2):
            yield Fault(f"{one} and {other}", "both select the steps to make", _CHOOSE)
        if self.again and self.failed:
            yield Fault("--again and --failed", "both select the steps to make again", _CHOOSE)
        if self.samples is not None and limit is not None:
            yield Fault("--limit and --samples", "both select the samples", _CHOOSE)

    def named_part(self) -> Part | None:
        """The part of the samples that `part` names. Raises `InputError`."""
        return None if self.part is None else Part.named(self.part)

    def misfits(self, pipeline: Pipeline) -> Iterator[Fault]:
        """A fault for each option that a pipeline does not allow.

        A named step must exist and be in the run, and the samples that `part` divides must not be
        those since the last run.
        """
        samples = valid_section(pipeline.source, "samples", SamplesSource)
        select = None if samples is None else samples.select
        if self.part is not None and select is not None and select.since == LAST_RUN:
            place = pipeline.source.place("samples", "select", "since")
            what = f"a run of a part is no last run, since which {place} takes the samples"
            yield Fault("--part", what, "write a time there, as in since: 24h")
        names = [step.name for step in pipeline.steps]
        first = () if self.from_step is None else (self.from_step,)
        named = {"--again": self.again, "--only": self.only, "--from": first}
        wrong = {(option, name) for option in named for name in named[option] if name not in names}
        for option, name in sorted(wrong):
            yield Fault(option, f"there is no step {name!r}", one_of(name, names))
        scope = self.scope()
        if scope is None or wrong or self.failed:
            return
        wanted = select_steps(pipeline, self).wanted
        for name in self.again:
            if name not in wanted:
                what = f"{name!r} is not made in a run {scope} {' '.join(named[scope])}"
                yield Fault(f"--again and {scope}", what, f"leave out --again {name} or {scope}")

    def _scopes(self) -> list[str]:
        given = {
            "--only": bool(self.only),
            "--from": self.from_step is not None,
            "--failed": self.failed,
        }
        return [option for option, is_given in given.items() if is_given]


class StepSelection(NamedTuple):
    """The steps of a run, in an order that can run.

    Steps in `again` are made although their tables are stored; tables of steps in `found` must
    be stored; steps in `fresh` ask models again, for all replies that are older than `fresh_since`
    (None: than the run). `nothing_to_do` says that there are no steps or no samples, None where
    there are, and `looked_at` is the run that still stands then, empty where there is none.
    """

    steps: tuple[Step, ...]
    again: frozenset[str] = frozenset()
    found: frozenset[str] = frozenset()
    fresh: frozenset[str] = frozenset()
    fresh_since: datetime | None = None
    nothing_to_do: str | None = None
    looked_at: str = ""

    @property
    def wanted(self) -> frozenset[str]:
        """The steps that the run is for."""
        return frozenset(step.name for step in self.steps) - self.found


def select_steps(pipeline: Pipeline, rerun: Rerun, failed: Collection[str] = ()) -> StepSelection:
    """The steps that `rerun` selects, where steps in `failed` have failed rows."""
    steps = pipeline.steps
    if rerun.only:
        wanted = frozenset(rerun.only)
    elif rerun.from_step is not None:
        wanted = _downstream(steps, {rerun.from_step})
    elif rerun.failed:
        wanted = _downstream(steps, failed)
    else:
        wanted = frozenset(step.name for step in steps)
    needed = upstream(steps, wanted)
    fresh = frozenset(rerun.again or failed or wanted) if rerun.fresh else frozenset[str]()
    return StepSelection(
        tuple(step for step in steps if step.name in needed),
        again=fresh.union(rerun.again, failed),
        found=needed - wanted,
        fresh=fresh,
    )


def _downstream(steps: Iterable[Step], names: Collection[str]) -> frozenset[str]:
    """The named steps and all that depend on them; `steps` are in order."""
    reached = set(names)
    for step in steps:
        if not reached.isdisjoint(step.needs):
            reached.add(step.name)
    return frozenset(reached)


def upstream(steps: tuple[Step, ...], names: Collection[str]) -> frozenset[str]:
    """The named steps and all that they depend on; `steps` are in order."""
    reached = set(names)
    for step in reversed(steps):
        if step.name in reached:
            reached.update(step.needs)
    return frozenset(step.name for step in steps if step.name in reached)
