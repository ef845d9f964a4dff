"""Execution, in the paper's table: by an RNN over the statement, or by Dense layers and a GRU."""

import torch
from torch import Tensor, nn

from ipagnn.data.contract import Batch
from ipagnn.nn.cell import Dense, StatementRNN
from ipagnn.nn.message_passing import Edges, Execution, is_exit
from ipagnn.ops import STATE_PARTS


class RunStatement(Execution):
    """Execution of the IPA-GNN: an RNN over the statement. The exit has none, so it is not executed."""

    def start(self, cell: StatementRNN, batch: Batch) -> Tensor:
        """0."""
        return cell.zero_state(len(batch.true))

    def execute(self, h: Tensor, cell: StatementRNN, table: Tensor, batch: Batch) -> Tensor:
        """RNN(h, Embed(x_n)), equation 3."""
        return torch.where(is_exit(batch)[:, None], h, cell(h, batch.node_tokens, table))

    def messages(self, a: Tensor, edges: Edges) -> Tensor:
        """The state of the source."""
        return a[edges.source]

    def update(self, h: Tensor, proposal: Tensor) -> Tensor:
        """h~."""
        return proposal


class TypedMessages(Execution):
    """Messages of the GGNN: a Dense per edge type, so that whoever receives one knows its type.

    It acts on each of the four parts of a state alike, as in the release.

    Args:
        hidden: Width of a state part.
        kinds: Number of edge types.
        generator: Draws the weights.
    """

    def __init__(self, hidden: int, kinds: int, generator: torch.Generator) -> None:
        super().__init__()
        self.dense = nn.ModuleList(Dense(hidden, hidden, generator) for _ in range(kinds))

    def messages(self, a: Tensor, edges: Edges) -> Tensor:
        """Dense(a1), with the Dense of the edge's type."""
        by_kind = torch.stack([dense(_parts(a)) for dense in self.dense], dim=1)  # [node, kind, part, hidden]
        return by_kind[edges.source, edges.kind].flatten(1)


class RunTypedStatement(TypedMessages, RunStatement):
    """Execution of the IPA-GNN with the messages of the GGNN."""


class GatedUpdate(TypedMessages):
    """Execution of the GGNN: the statement is read once, at the start; then a Dense per edge type, and a GRU.

    The GRU acts on each part alike, too. The exit's statement is four padding tokens.

    Args:
        hidden, kinds, generator: See `TypedMessages`.
    """

    def __init__(self, hidden: int, kinds: int, generator: torch.Generator) -> None:
        super().__init__(hidden, kinds, generator)
        self.gru = GRU(hidden, generator)

    def start(self, cell: StatementRNN, batch: Batch) -> Tensor:
        """Embed(x_n): the LSTM over the statement, from zero."""
        return cell.forward(cell.zero_state(len(batch.true)), batch.node_tokens)

    def execute(self, h: Tensor, cell: StatementRNN, table: Tensor, batch: Batch) -> Tensor:
        """The state as it is."""
        return h

    def update(self, h: Tensor, proposal: Tensor) -> Tensor:
        """GRU(h, h~)."""
        return self.gru.forward(_parts(h), _parts(proposal)).flatten(1)


class GRU(nn.Module):
    """A gated recurrent unit; gates r, z, n side by side, initialised as those of `StatementRNN` are.

    Shapes:
        h [..., hidden], x [..., hidden] -> [..., hidden]
    """

    def __init__(self, hidden: int, generator: torch.Generator) -> None:
        super().__init__()
        blocks = [torch.empty(hidden, hidden) for _ in range(6)]
        for x, h in zip(blocks[:3], blocks[3:], strict=True):
            nn.init.xavier_uniform_(x, generator=generator)
            nn.init.orthogonal_(h, generator=generator)
        self.input = nn.Parameter(torch.cat(blocks[:3], dim=1))
        self.hidden = nn.Parameter(torch.cat(blocks[3:], dim=1))
        self.bias = nn.Parameter(torch.zeros(3 * hidden))

    def forward(self, h: Tensor, x: Tensor) -> Tensor:
        """The state after reading `x`."""
        x_r, x_z, x_n = (x @ self.input + self.bias).chunk(3, dim=-1)
        h_r, h_z, h_n = (h @ self.hidden).chunk(3, dim=-1)
        reset, keep = (x_r + h_r).sigmoid(), (x_z + h_z).sigmoid()
        return keep * h + (1 - keep) * (x_n + reset * h_n).tanh()


def _parts(state: Tensor) -> Tensor:
    """[node, 4 * hidden] -> [node, part, hidden]"""
    return state.view(len(state), STATE_PARTS, -1)
