"""Programs as graphs of PyTorch Geometric."""

from typing import TYPE_CHECKING, Any, Final

import torch

from ipagnn.data.collate import PAPER_BUDGET, StepBudget, collate
from ipagnn.languages.arithmetic.cfg import control_flow_graph
from ipagnn.languages.arithmetic.grammar import PAPER, Grammar
from ipagnn.languages.arithmetic.program import Program
from ipagnn.languages.arithmetic.text import format_program

if TYPE_CHECKING:
    from torch_geometric.data import Data

NEXT: Final = 0
"""Type of an edge from a node that decides nothing."""
TRUE: Final = 1
FALSE: Final = 2


def to_geometric(
    program: Program, target: int | None = None, grammar: Grammar = PAPER, budget: StepBudget = PAPER_BUDGET
) -> "Data":
    """A program's control flow graph as a `Data` object, with all that models read.

    A `DataLoader` of PyTorch Geometric batches them: `start_index` and `exit_index` count through the whole batch then.

    Args:
        program: The program.
        target: v0 at the end of the complete program; None if it is unknown.
        grammar: Its language; decides the text and, for the budget `trace`, the true trace.
        budget: How many steps models get.

    Returns:
        `x`: token ids of each node's statement, zeros for the exit. int64 [node, 4]
        `edge_index`: from, to; without the exit's edge to itself. int64 [2, edge]
        `edge_type`: `NEXT`, `TRUE` or `FALSE`. int64 [edge]
        `line`: line of each node, -1 for the exit. int64 [node]
        `start_index`, `exit_index`: where execution begins and ends. int64 [1]
        `steps`: T(x), or what the budget makes of it. int64 [1]
        `y`: the target, -1 if unknown. int64 [1]
        `source`: the text
    """
    try:
        from torch_geometric.data import Data
    except ImportError as error:
        raise ImportError(
            "to_geometric needs PyTorch Geometric; install it with `pip install torch_geometric`."
        ) from error
    batch = collate(
        [program],
        budget,
        modulus=grammar.modulus,
        condition_modulus=grammar.condition_modulus,
        extended=grammar.is_extended,
        wrap=grammar.wrap,
    )
    edges = control_flow_graph(program).edges
    kinds = {None: NEXT, True: TRUE, False: FALSE}
    fields: dict[str, Any] = {
        "x": batch.node_tokens.long(),
        "edge_index": torch.tensor([[a, b] for a, b, _ in edges]).long().reshape(-1, 2).T.contiguous(),
        "edge_type": torch.tensor([kinds[branch] for _, _, branch in edges]).long(),
        "line": batch.node_line.long(),
        "start_index": batch.starts.long(),
        "exit_index": batch.exits.long(),
        "steps": batch.steps.long(),
        "y": torch.tensor([-1 if target is None else target]),
        "source": format_program(program, grammar.condition_modulus),
    }
    return Data(**fields)
