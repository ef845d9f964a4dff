"""Executions: tensors in, tensors out, and no models. This is their one door.

`walk` runs an instruction pointer over graphs, and `pass_messages` exchanges messages between all nodes. Backends stand
in `BACKENDS` and `MESSAGE_BACKENDS`, the fastest first; each says in a sentence why it cannot run a call, and the first
that can does. The last is the reference, which spells the paper and never refuses.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Final, Generic, TypeVar

from torch import Tensor

from ipagnn._common.hints import near_miss
from ipagnn.ops import reference
from ipagnn.ops.call import STATE_PARTS, PointerCall, Result, StatementLSTM
from ipagnn.ops.messages import reference as message_reference
from ipagnn.ops.messages.call import MessageCall, MessageKind, Messages
from ipagnn.ops.messages.triton import backend as message_kernels
from ipagnn.ops.pointer import rows
from ipagnn.ops.pointer.cpu import backend as compiled
from ipagnn.ops.pointer.environment import WRITES, EnvironmentPlan, follower, plan_environment, read_statements
from ipagnn.ops.pointer.equations import branch_decisions, divide, spread, two_edges
from ipagnn.ops.pointer.rows import RowValues, plan_rows, record_rows
from ipagnn.ops.pointer.streaming import backend as streaming
from ipagnn.ops.pointer.streaming import pruned
from ipagnn.ops.pointer.streaming.plan import steps_to_exit
from ipagnn.ops.pointer.triton import backend as kernels

__all__ = [
    "BACKENDS",
    "MESSAGE_BACKENDS",
    "STATE_PARTS",
    "WRITES",
    "Backend",
    "EnvironmentPlan",
    "MessageCall",
    "MessageKind",
    "Messages",
    "PointerCall",
    "Result",
    "RowValues",
    "StatementLSTM",
    "branch_decisions",
    "can_stream",
    "choose",
    "divide",
    "follower",
    "pass_messages",
    "plan_environment",
    "plan_rows",
    "read_statements",
    "record_rows",
    "spread",
    "steps_to_exit",
    "two_edges",
    "walk",
]

log = logging.getLogger(__name__)
C = TypeVar("C", PointerCall, MessageCall)


@dataclass(frozen=True, slots=True)
class Backend(Generic[C]):
    """An execution of a kind of call.

    Attributes:
        name: What `execution` calls it.
        refuses: Why it cannot run a call, as a clause; None if it can.
        run: Runs it.
        weighs_exits: Whether it records `exit_mass`; for others `walk` reads it off the pointer.
    """

    name: str
    refuses: Callable[[C], str | None]
    run: Callable[[C], Result]
    weighs_exits: bool = False


BACKENDS: Final[tuple[Backend[PointerCall], ...]] = (
    Backend("streaming", streaming.refuses, streaming.run),
    Backend("hopper", kernels.refuses_hopper, kernels.run_hopper),
    Backend("triton", kernels.refuses_triton, kernels.run_triton),
    Backend("compiled", compiled.refuses, compiled.run),
    Backend("pruned", pruned.refuses, pruned.run, weighs_exits=True),
    Backend("rows", rows.refuses, rows.run),
    Backend("reference", reference.refuses, reference.run),
)
MESSAGE_BACKENDS: Final[tuple[Backend[MessageCall], ...]] = (
    Backend("triton", message_kernels.refuses, message_kernels.run),
    Backend("reference", message_reference.refuses, message_reference.run),
)


def choose(backends: tuple[Backend[C], ...], call: C, execution: str = "auto") -> Backend[C]:
    """The backend for a call.

    Args:
        backends: Those to choose from.
        call: What is to be run.
        execution: Name of a backend; `auto` takes the fastest that does not refuse.

    Raises:
        ValueError: There is no such backend, or it refuses.
    """
    if execution == "auto":
        refusals: list[str] = []
        for backend in backends:
            if (why := backend.refuses(call)) is None:
                _note(backend.name, "; ".join(refusals))
                return backend
            refusals.append(f"not {backend.name}, as {why}")
        raise AssertionError("The reference never refuses.")
    found = next((backend for backend in backends if backend.name == execution), None)
    if found is None:
        known = ["auto", *(backend.name for backend in backends)]
        raise ValueError(f"There is no execution {execution!r}. {near_miss(execution, known, 'Choose one of')}")
    if (why := found.refuses(call)) is not None:
        raise ValueError(f"The execution {execution!r} cannot run this: {why}. Choose 'auto'.")
    return found


@cache
def _note(name: str, refusals: str) -> None:
    """Log a choice, once."""
    log.info("Execution: %s%s.", name, f" ({refusals})" if refusals else "")


def can_stream(weight: Tensor) -> bool:
    """Whether inference with a statement LSTM of weights like this one unrolls no rows, whatever the steps."""
    return streaming.missing(weight) is None


def walk(call: PointerCall, execution: str = "auto") -> Result:
    """Run an instruction pointer over graphs; see `choose`."""
    backend = choose(BACKENDS, call, execution)
    if "exit_mass" not in call.record or backend.weighs_exits:
        return backend.run(call)
    result = walk(replace(call, record=call.record - {"exit_mass"} | {"pointer"}), execution)
    pointer, graphs = result.recorded["pointer"], call.graphs
    last = graphs.steps.long().clamp(max=len(pointer) - 1)
    return Result(result.final, result.recorded | {"exit_mass": pointer[last, graphs.exits.long()]})


def pass_messages(call: MessageCall, execution: str = "auto") -> Result:
    """Exchange messages between the nodes of graphs; see `choose`."""
    return choose(MESSAGE_BACKENDS, call, execution).run(call)
