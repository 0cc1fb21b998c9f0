"""The flow as deployments name it: `claimflow.deployed.evaluate`.

Prefect stores this path with every deployment and imports it in a process that executes one flow
run and nothing else. Only there one function of Prefect is replaced, see
`keep_running_without_lease`; to call the flow from a program of your own import it from
 `claimflow.flows.orchestration.flow`.
"""

from claimflow.flows.orchestration.flow import evaluate
from claimflow.flows.orchestration.recovery import keep_running_without_lease

__all__ = ["evaluate"]

keep_running_without_lease()
