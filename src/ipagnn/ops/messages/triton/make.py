"""Which plan a model's messages need."""

from ipagnn.data.contract import Batch
from ipagnn.ops.messages.call import Messages
from ipagnn.ops.messages.triton.plan import MessagePlan
from ipagnn.ops.messages.triton.statement_plan import StatementPlan


def make_plan(how: Messages, batch: Batch, *, pinned: bool = False) -> MessagePlan | StatementPlan:
    """The plan of a batch; `pinned` in page-locked memory."""
    if how.kind == "statements":
        return StatementPlan.build(batch, bidirectional=how.bidirectional, edge_types=how.edge_types, pinned=pinned)
    return MessagePlan.build(batch, how.kind, pinned=pinned)
