"""Sends the evaluations of runs to a target, and records in the store what it has taken."""

import fcntl
import hashlib
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from claimflow.flows.errors import Fault, InputError
from claimflow.flows.files import faults_of_writing, open_private, refuse_special
from claimflow.flows.sending.endpoint import TooMuchError
from claimflow.flows.sending.evaluations import Evaluation, RunEvaluations
from claimflow.flows.sending.targets import Answer, RunTarget, Target, target_of
from claimflow.flows.store.sendings import (
    Sending,
    begin_sending,
    end_sending,
    has_ended,
    pipeline_of,
    record_sent,
    sent_before,
    unfinished_sendings,
)
from claimflow.flows.store.store import Store
from claimflow.stages.rows import content_key

_HOPELESS: Final = 20
"""Evaluations refused one after the other, none taken before, after which no more is sent."""

_PATIENCE: Final = 120.0
"""Seconds to wait until another process has sent from the same store to the same target."""


class Delivered(NamedTuple):
    """What became of the evaluations of a run.

    `earlier` are those that the target had taken before. By reason, `left_out` counts those that it
    cannot have, and `refused` those that its server refused. `skipped` is why an earlier sending
    was left as it is.
    """

    run_id: str
    target: str
    samples: int
    untraced: int
    sent: int
    earlier: int
    left_out: Counter[str]
    refused: Counter[str]
    verb: str = "sent"
    skipped: str = ""

    @property
    def lines(self) -> list[str]:
        """What to tell of it, one line for each fact."""
        if self.skipped:
            again = f"to mend it, claimflow send {self.run_id} --to {self.target}"
            return [f"{self.target}: run {self.run_id}: skipped: {self.skipped}; {again}"]
        one = "run" if self.samples == 0 else "evaluation"
        sent = f"{self.sent:,} {one}{'' if self.sent == 1 else 's'} {self.verb}"
        was = "was" if self.earlier == 1 else "were"
        before = f", {self.earlier:,} {was} sent before" if self.earlier else ""
        told = [f"{self.target}: run {self.run_id}: {sent}{before}"]
        if self.untraced:
            have = "has" if self.untraced == 1 else "have"
            told.append(
                f"{self.untraced:,} of {self.samples:,} samples {have} no trace id; not sent"
            )
        told += [
            f"{count:,} not sent: {why}"
            for why, count in sorted((self.left_out + self.refused).items())
        ]
        return told


def send(
    store: Store,
    run_id: str,
    target: str,
    metrics: Sequence[str] = (),
    *,
    again: bool = False,
    earlier: bool = False,
) -> Iterator[Delivered]:
    """Send what a target has not taken yet of the scores of a run; with `again` all of them.

    With `earlier`, sendings of older runs of the pipeline that did not end come first. Raises
    `InputError` where the target cannot be used, or the run lacks the metrics; nothing is recorded
    then. After other errors the next call goes on from there.
    """
    sending = Sending(run_id, target, tuple(metrics))
    with _opened(store, target) as found:
        found.address()
        RunEvaluations(store, sending)
        if not has_ended(store, run_id, target) or _has_new(store, sending, found, again=again):
            begin_sending(store, sending)
        if earlier:
            pipeline = pipeline_of(store, run_id)
            open_ = unfinished_sendings(store, pipeline, target, before=run_id)
            yield from _send_open(store, open_, found, again=again)
        yield _send_one(store, sending, found, again=again)


def send_missing(store: Store, pipeline: str, target: str) -> Iterator[Delivered]:
    """Send what sendings of a pipeline to a target that did not end have left.

    Raises `InputError` where there are some and the target cannot be used.
    """
    open_ = unfinished_sendings(store, pipeline, target)
    if not open_:
        return
    with _opened(store, target) as found:
        yield from _send_open(store, open_, found, again=False)


def _send_open(
    store: Store, open_: Iterable[Sending], found: Target | RunTarget, *, again: bool
) -> Iterator[Delivered]:
    """Send what is left of earlier sendings; one that its run cannot have is told and skipped."""
    for one in open_:
        try:
            RunEvaluations(store, one)
        except InputError as error:
            none = Counter[str]()
            why = str(error).replace("\n", "; ")
            yield Delivered(one.run_id, one.target, 0, 0, 0, 0, none, none, skipped=why)
            continue
        yield _send_one(store, one, found, again=again)


def _send_one(
    store: Store, sending: Sending, found: Target | RunTarget, *, again: bool
) -> Delivered:
    if isinstance(found, Target):
        return _deliver(store, sending, found, again=again)
    return _log_run(store, sending, found, again=again)


def _has_new(store: Store, sending: Sending, found: Target | RunTarget, *, again: bool) -> bool:
    """Whether there is something of a sending that the target has not taken, or shall again."""
    if again:
        return True
    address = content_key("address", found.address())
    if not isinstance(found, Target):
        key = content_key("run", sending.run_id, sending.target)
        return not sent_before(store, address, [key])
    for batch in RunEvaluations(store, sending).batches():
        ids = [one.evaluation_id for one in _fitting(batch, found, Counter())]
        if len(sent_before(store, address, ids)) < len(ids):
            return True
    return False


@contextmanager
def _opened(store: Store, name: str) -> Iterator[Target | RunTarget]:
    """A target for this process alone, whose connections are closed at the end."""
    target = target_of(name)
    with _alone(store, name):
        try:
            yield target
        finally:
            if isinstance(target, Target):
                target.close()


@contextmanager
def _alone(store: Store, target: str) -> Iterator[None]:
    """Wait until no other sends from the store to the target: both would send the same.

    The lock is a file beside the store, which the system frees at any end.
    """
    name = hashlib.sha256(target.encode()).hexdigest()[:8]
    path = store.path.with_name(f"{store.path.name}.{name}.sending")
    deadline = time.monotonic() + _PATIENCE
    while True:
        with faults_of_writing(path):
            file = path.open("ab")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Who had it before may have removed it: then another is locked under this name.
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                break
        except FileNotFoundError:
            pass
        except BlockingIOError:
            if time.monotonic() > deadline:
                file.close()
                what = f"another process sends from this store to {target}"
                hint = "send again when it has ended"
                raise InputError([Fault(str(store.path), what, hint)]) from None
            time.sleep(0.1)
        except OSError:
            break  # This file system has no locks.
        file.close()
    with file:
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def write_file(
    store: Store, run_id: str, target: str, path: Path, metrics: Sequence[str] = ()
) -> Delivered:
    """Write the evaluations of a run as the target takes them, as JSON Lines."""
    found = target_of(target)
    if not isinstance(found, Target):
        raise InputError([Fault("--file", f"{target} has no files", "leave out --file")])
    sending = Sending(run_id, target, tuple(metrics))
    evaluations, left_out, written = RunEvaluations(store, sending), Counter[str](), 0
    with faults_of_writing(path):
        refuse_special(path)
        part = path.with_name(f".{path.name}.part")
        try:
            # What an earlier process left may be a link, or readable by others.
            part.unlink(missing_ok=True)
            with open(part, "x", encoding="utf-8", opener=open_private) as file:
                for batch in evaluations.batches():
                    fit = _fitting(batch, found, left_out)
                    for some in _parts(fit, found.largest):
                        file.writelines(
                            f"{json.dumps(line, ensure_ascii=False)}\n"
                            for line in found.lines(some)
                        )
                    written += len(fit)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    return Delivered(
        *(run_id, target, evaluations.samples, evaluations.untraced, written, 0),
        *(left_out, Counter[str](), "written"),
    )


def _deliver(store: Store, sending: Sending, target: Target, *, again: bool) -> Delivered:
    evaluations, left_out, refused = RunEvaluations(store, sending), Counter[str](), Counter[str]()
    address = content_key("address", target.address())
    sent = earlier = 0
    hopeless = _Hopeless()
    for batch in evaluations.batches():
        fit = _fitting(batch, target, left_out)
        ids = [one.evaluation_id for one in fit]
        known = set[str]() if again else sent_before(store, address, ids)
        earlier += len(known)
        todo = [one for one in fit if one.evaluation_id not in known]
        for some in _parts(todo, target.largest):
            for part, answer in _halving(some, target.send):
                fine = [
                    one.evaluation_id
                    for place, one in enumerate(part)
                    if place not in answer.refused
                ]
                sent += len(fine) - answer.lost
                refused.update(answer.refused.values())
                if answer.lost:
                    # Which ones is not known: all of them are sent again the next time.
                    refused[f"the server refuses records{answer.message}"] += answer.lost
                else:
                    record_sent(store, sending, address, fine)
                    hopeless.check(answer, fine)
    end_sending(store, sending)
    return Delivered(
        *(sending.run_id, sending.target, evaluations.samples, evaluations.untraced),
        *(sent, earlier, left_out, refused),
    )


class _Hopeless:
    """Stops a sending of which the server refuses everything: something else is wrong."""

    def __init__(self) -> None:
        self._refused: int | None = 0

    def check(self, answer: Answer, taken: Sequence[str]) -> None:
        """Raise `InputError` for the last of many refusals, while nothing has been taken."""
        if taken or self._refused is None:
            self._refused = None
            return
        self._refused += len(answer.refused)
        if self._refused >= _HOPELESS:
            why = next(iter(answer.refused.values()))
            what = f"the first {self._refused} evaluations are all refused ({why})"
            raise InputError(
                [Fault("send", what, "is it the right server, and are their traces on it?")]
            )


def _log_run(store: Store, sending: Sending, target: RunTarget, *, again: bool) -> Delivered:
    key = content_key("run", sending.run_id, sending.target)
    new = target.send_run(store, sending.run_id, sending.metrics, again=again)
    record_sent(store, sending, content_key("address", target.address()), [key])
    end_sending(store, sending)
    none = Counter[str]()
    return Delivered(sending.run_id, sending.target, 0, 0, int(new), int(not new), none, none)


def _fitting(
    batch: Iterable[Evaluation], target: Target, left_out: Counter[str]
) -> list[Evaluation]:
    """The evaluations that the target can have; the others are counted by reason."""
    fit = []
    for one in batch:
        why = target.unfit(one)
        if why is None:
            fit.append(one)
        else:
            left_out[why] += 1
    return fit


def _parts(batch: Sequence[Evaluation], largest: int) -> Iterator[Sequence[Evaluation]]:
    for start in range(0, len(batch), largest):
        yield batch[start : start + largest]


def _halving(
    batch: Sequence[Evaluation], send_batch: Callable[[Sequence[Evaluation]], Answer]
) -> Iterator[tuple[Sequence[Evaluation], Answer]]:
    """Send a batch, in halves where the server does not take it as a whole."""
    try:
        answer = send_batch(batch)
    except TooMuchError:
        middle = len(batch) // 2
        if middle == 0:
            raise
        for half in (batch[:middle], batch[middle:]):
            yield from _halving(half, send_batch)
        return
    yield batch, answer
