"""The parts that every model is made of: a Dense layer and the two-layer LSTM that reads a statement token by token."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ipagnn.languages.arithmetic.vocabulary import VOCABULARY_SIZE
from ipagnn.ops import STATE_PARTS, StatementLSTM


def xavier_uniform(inputs: int, outputs: int, generator: torch.Generator) -> nn.Parameter:
    """A weight matrix [inputs, outputs], drawn after Glorot and Bengio."""
    return nn.Parameter(nn.init.xavier_uniform_(torch.empty(inputs, outputs), generator=generator))


class Dense(nn.Module):
    """`x @ weight + bias`; Xavier uniform, bias 0.

    Shapes:
        x [..., inputs] -> [..., outputs]
    """

    def __init__(self, inputs: int, outputs: int, generator: torch.Generator) -> None:
        super().__init__()
        self.weight = xavier_uniform(inputs, outputs, generator)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """The affine map of `x`."""
        return x @ self.weight + self.bias


class StatementRNN(nn.Module):
    """`RNN(h, Embed(x_n))`: a two-layer LSTM over the four tokens of a statement.

    Section 4.1 of the paper; docs/specification.md, section 5.

    Kernels are stored input-major, with the gates i, f, g, o side by side; each gate's [hidden, hidden] block is
    initialised on its own: input weights Xavier uniform, recurrent weights orthogonal. One bias per layer, zero.

    Shapes:
        state [row, 4 * hidden], tokens [row, 4] -> state [row, 4 * hidden], as (c1, h1, c2, h2)
    """

    def __init__(self, hidden: int, generator: torch.Generator) -> None:
        super().__init__()
        self.hidden = hidden
        self.embedding = nn.Parameter(torch.empty(VOCABULARY_SIZE, hidden).uniform_(-1, 1, generator=generator))
        self.input_1 = _gates(hidden, generator, orthogonal=False)
        self.hidden_1 = _gates(hidden, generator, orthogonal=True)
        self.bias_1 = nn.Parameter(torch.zeros(4 * hidden))
        self.input_2 = _gates(hidden, generator, orthogonal=False)
        self.hidden_2 = _gates(hidden, generator, orthogonal=True)
        self.bias_2 = nn.Parameter(torch.zeros(4 * hidden))

    def table(self, tokens: Tensor | None = None) -> Tensor:
        """What each token adds to the gates of layer 1: 1,048 distinct rows, computed once per forward pass.

        docs/specification.md, section 6.2.

        Args:
            tokens: Those wanted, if not all. [token]

        Shapes:
            -> [vocabulary or token, 4 * hidden]
        """
        embedding = self.embedding if tokens is None else self.embedding.index_select(0, tokens)
        return embedding @ self.input_1 + self.bias_1

    @property
    def state_shape(self) -> tuple[int, ...]:
        """(4 * hidden,)"""
        return (STATE_PARTS * self.hidden,)

    def prepared(self) -> Callable[[Tensor, Tensor], Tensor]:
        """`forward`, with the table computed once."""
        table = self.table()
        return lambda state, tokens: self.forward(state, tokens, table)

    def weights(self, tokens: Tensor, branch: Dense | None) -> StatementLSTM:
        """All that compiled executions read: the weights of the cell and of a branch layer.

        Args:
            tokens: Token ids of the statement at each node. [node, 4]
            branch: From a state to the logits of (true, false); None where nothing is decided.
        """
        layers = (self.input_1, self.hidden_1, self.bias_1, self.input_2, self.hidden_2, self.bias_2)
        decide = () if branch is None else (branch.weight, branch.bias)
        return StatementLSTM(tokens, self.embedding, *layers, *decide)

    def zero_state(self, rows: int) -> Tensor:
        """The state before anything was read. [row, 4 * hidden]"""
        return self.embedding.new_zeros(rows, STATE_PARTS * self.hidden)

    def forward(self, state: Tensor, tokens: Tensor, table: Tensor | None = None) -> Tensor:
        """The state after the statement.

        Args:
            state: The state before it. [row, 4 * hidden]
            tokens: Its token ids. [row, 4]
            table: `self.table()`, where a caller runs many statements with the same weights.
        """
        table = self.table() if table is None else table
        memory_1, output_1, memory_2, output_2 = state.chunk(STATE_PARTS, dim=-1)
        for token in tokens.unbind(dim=-1):
            memory_1, output_1 = _lstm(memory_1, torch.addmm(table[token], output_1, self.hidden_1))
            memory_2, output_2 = _upper(self, output_1, memory_2, output_2)
        return torch.cat([memory_1, output_1, memory_2, output_2], dim=-1)


class Decoder(nn.Module):
    """The read-out of the release's recurrent models: two more LSTM layers take one step without input, and a Dense
    layer reads the output of the upper one. Its weight is drawn from N(0, 1), so that logits are large from the start.

    Shapes:
        state [row, 4 * hidden] -> logits [row, classes]
    """

    def __init__(self, hidden: int, classes: int, generator: torch.Generator) -> None:
        super().__init__()
        self.hidden_1 = _gates(hidden, generator, orthogonal=True)
        self.bias_1 = nn.Parameter(torch.zeros(4 * hidden))
        self.input_2 = _gates(hidden, generator, orthogonal=False)
        self.hidden_2 = _gates(hidden, generator, orthogonal=True)
        self.bias_2 = nn.Parameter(torch.zeros(4 * hidden))
        self.dense = Dense(hidden, classes, generator)
        nn.init.normal_(self.dense.weight, generator=generator)

    def decode(self, state: Tensor) -> Tensor:
        """The upper layer's output. [row, hidden]"""
        memory_1, output_1, memory_2, output_2 = state.chunk(STATE_PARTS, dim=-1)
        _, output_1 = _lstm(memory_1, torch.addmm(self.bias_1, output_1, self.hidden_1))
        return _upper(self, output_1, memory_2, output_2)[1]

    def forward(self, state: Tensor) -> Tensor:
        """The logits."""
        return self.dense(self.decode(state))  # type: ignore[no-any-return]


def _gates(hidden: int, generator: torch.Generator, *, orthogonal: bool) -> nn.Parameter:
    initialise = nn.init.orthogonal_ if orthogonal else nn.init.xavier_uniform_
    blocks = [initialise(torch.empty(hidden, hidden), generator=generator) for _ in range(4)]
    return nn.Parameter(torch.cat(blocks, dim=1))


def _upper(layers: StatementRNN | Decoder, below: Tensor, memory: Tensor, output: Tensor) -> tuple[Tensor, Tensor]:
    """New memory and output of layer 2, from layer 1's output. [row, hidden] each."""
    gates = torch.addmm(torch.addmm(layers.bias_2, below, layers.input_2), output, layers.hidden_2)
    return _lstm(memory, gates)


def _lstm(memory: Tensor, gates: Tensor) -> tuple[Tensor, Tensor]:
    """New memory and output of one LSTM layer. [row, hidden] each."""
    i, f, g, o = gates.chunk(4, dim=-1)
    memory = torch.addcmul(f.sigmoid() * memory, i.sigmoid(), g.tanh())
    return memory, o.sigmoid() * memory.tanh()
