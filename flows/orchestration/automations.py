"""Prefect automations: what happens when runs fail, start late, or are no longer heard of."""

from collections.abc import Callable
from datetime import timedelta
from typing import Final

import yaml
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import StateType
from prefect.events.actions import (
    ActionTypes,
    CallWebhook,
    ChangeFlowRunState,
    DoNothing,
    SendNotification,
)
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
from prefect.events.schemas.events import ResourceSpecification
from prefect.exceptions import ObjectNotFound

from claimflow.flows.errors import Fault, InputError

SILENT_AFTER: Final = timedelta(minutes=10)
"""A run without a heartbeat for longer counts as crashed; Prefect sends one every three minutes."""

LATE_AFTER: Final = timedelta(minutes=10)
"""A run that no worker starts for longer after its time is announced as late."""


def register_automations(
    client: SyncPrefectClient,
    file: str,
    block: str | None,
    *,
    late: timedelta = LATE_AFTER,
    silent: timedelta = SILENT_AFTER,
) -> None:
    """Create or update the automations for the runs of a schedules file, whose tag is its path.

    `block` is the Prefect block that sends notifications, as in "slack-webhook/nights". An
    automation that a user disabled stays disabled. Raises `InputError` if there is no such block.
    """
    for one in automations(client, file, block, late=late, silent=silent):
        known = client.read_automations_by_name(one.name)
        if not known:
            client.create_automation(one)
        for place, same in enumerate(known):
            # There are several if two processes registered the file at the same moment.
            if place:
                client.delete_automation(same.id)
            else:
                update = one.model_copy(update={"enabled": same.enabled})
                client.update_automation(same.id, update)


def remove_automations(client: SyncPrefectClient, file: str) -> None:
    """Remove the automations of a schedules file."""
    for what in (_FAILED, _LATE, _SILENT):
        for one in client.read_automations_by_name(_name(what, file)):
            client.delete_automation(one.id)


def automations_yaml(client: SyncPrefectClient, file: str, block: str | None) -> str:
    """The automations as YAML, for `prefect automation create --from-file`."""
    written = [
        one.model_dump(mode="json", exclude_defaults=True)
        | {"trigger": one.trigger.model_dump(mode="json")}
        | {"actions": [action.model_dump(mode="json") for action in one.actions]}
        for one in automations(client, file, block)
    ]
    return yaml.safe_dump({"automations": written}, sort_keys=False, allow_unicode=True)


def automations(
    client: SyncPrefectClient,
    file: str,
    block: str | None,
    *,
    late: timedelta = LATE_AFTER,
    silent: timedelta = SILENT_AFTER,
) -> list[AutomationCore]:
    """The automations: two that notify, and one that marks silent runs as crashed.

    A run that is marked so is announced as every crashed one. Without `block` the two do nothing,
    but Prefect shows when they were triggered.
    """
    notify = _notifier(client, block)
    failed = notify('flow_run.name ~ ": " ~ flow_run.state.name', 'flow_run.state.message or ""')
    waiting = notify(
        'deployment.name ~ ": a run is late"',
        '"No worker has started the run that was due at " ~ flow_run.expected_start_time',
    )
    crash = ChangeFlowRunState(
        state=StateType.CRASHED, message=f"nothing was heard of it for {silent}"
    )
    runs = _trigger(file, expect={"Failed", "Crashed", "TimedOut"})
    start = _trigger(file, after={"Late"}, expect={"*"}, within=late)
    # A run sends heartbeats from its start; another event than these three says that it has
    # ended or waits again.
    life = _trigger(file, after={"Pending", "Running", "heartbeat"}, expect={"*"}, within=silent)
    return [
        AutomationCore(name=_name(_FAILED, file), trigger=runs, actions=[failed]),
        AutomationCore(name=_name(_LATE, file), trigger=start, actions=[waiting]),
        AutomationCore(name=_name(_SILENT, file), trigger=life, actions=[crash]),
    ]


_FAILED: Final = "a run failed"
_LATE: Final = "a run is late"
_SILENT: Final = "a run is silent"


def _name(what: str, file: str) -> str:
    """The name of an automation; by it a later registration finds it."""
    return f"claimflow: {what} ({file})"


def _trigger(
    file: str,
    *,
    expect: set[str],
    after: set[str] | None = None,
    within: timedelta = timedelta(0),
) -> EventTrigger:
    """Triggered by events of runs of a file; with `after`, by no event within a time."""
    return EventTrigger(
        match=ResourceSpecification({"prefect.resource.id": "prefect.flow-run.*"}),
        match_related=ResourceSpecification(
            {"prefect.resource.role": "tag", "prefect.resource.id": f"prefect.tag.{file}"}
        ),
        for_each={"prefect.resource.id"},
        after={f"prefect.flow-run.{event}" for event in after or ()},
        expect={f"prefect.flow-run.{event}" for event in expect},
        posture=Posture.Proactive if after else Posture.Reactive,
        within=within,
    )


def _notifier(client: SyncPrefectClient, block: str | None) -> Callable[[str, str], ActionTypes]:
    """What makes the action from a subject and a text, both Jinja expressions."""
    if block is None:
        return lambda _subject, _body: DoNothing()
    kind, _, name = block.partition("/")
    place = f"notify: {block}"
    try:
        found = client.read_block_document_by_name(name, kind)
    except ObjectNotFound:
        hint = "save one as flows/guides/nightly.md says"
        raise InputError([Fault(place, "the Prefect server has no such block", hint)]) from None
    if kind == "webhook":
        return lambda subject, body: CallWebhook(
            block_document_id=found.id,
            payload=f'{{"text": {{{{ (({subject}) ~ ": " ~ ({body})) | tojson }}}}}}',
        )
    schema = found.block_schema
    if schema is None or "notify" not in schema.capabilities:
        hint = "name a webhook, slack-webhook or another block that does"
        raise InputError([Fault(place, "this block sends no notifications", hint)])
    return lambda subject, body: SendNotification(
        block_document_id=found.id, subject=f"{{{{ {subject} }}}}", body=f"{{{{ {body} }}}}"
    )
