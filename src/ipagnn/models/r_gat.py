"""The relational graph attention network."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from ipagnn._common.options import option
from ipagnn.data.contract import Batch
from ipagnn.models.base import ProgramModel
from ipagnn.models.config import ModelConfig
from ipagnn.models.output import Output, recorded
from ipagnn.models.registry import register
from ipagnn.nn.cell import xavier_uniform
from ipagnn.nn.message_passing import EDGE_TYPES, Edges

LEAK = 0.2
"""Slope of the leaky ReLU on negative attention logits, as in graph attention networks."""


class RelationalAttention(nn.Module):
    """One round of across-relation, additive graph attention: ARGAT of Busbridge et al., 2019.

        g_n^r   = x_n W^r
        e_{n',n} = LeakyReLU(q^r · g_n^r + k^r · g_{n'}^r)                 for an edge n' -> n of type r
        h~_n    = sum over n' of Softmax_{n'}(e_{n',n}) · g_{n'}^r + bias  the softmax runs over all edges that arrive

    Heads work on slices of the hidden vector, side by side.

    Shapes:
        x [node, hidden] -> [node, hidden]
    """

    def __init__(self, hidden: int, heads: int, kinds: int, generator: torch.Generator) -> None:
        super().__init__()
        self.heads = heads
        kernels = [xavier_uniform(hidden, hidden, generator).detach() for _ in range(kinds)]
        self.kernel = nn.Parameter(torch.stack(kernels))  # [kind, hidden, hidden]
        slices = hidden // heads
        self.query = nn.Parameter(xavier_uniform(kinds * heads, slices, generator).detach().view(kinds, heads, slices))
        self.key = nn.Parameter(xavier_uniform(kinds * heads, slices, generator).detach().view(kinds, heads, slices))
        self.bias = nn.Parameter(torch.zeros(hidden))

    def forward(self, x: Tensor, edges: Edges) -> Tensor:
        """What arrives at each node."""
        g = torch.einsum("nh,rho->nro", x, self.kernel).unflatten(2, (self.heads, -1))  # [node, kind, head, slice]
        query, key = (g * self.query).sum(-1), (g * self.key).sum(-1)  # [node, kind, head]
        logits = query[edges.target, edges.kind] + key[edges.source, edges.kind]
        weights = softmax_at(nn.functional.leaky_relu(logits, LEAK), edges.target, len(x))  # [edge, head]
        messages = (weights[..., None] * g[edges.source, edges.kind]).flatten(1)
        return torch.zeros_like(x).index_add(0, edges.target, messages) + self.bias


def softmax_at(logits: Tensor, target: Tensor, nodes: int) -> Tensor:
    """A softmax over the edges that share a target. [edge, head] -> [edge, head]"""
    index = target.long()[:, None].expand_as(logits)
    largest = logits.new_full((nodes, logits.shape[1]), -torch.inf).scatter_reduce(0, index, logits.detach(), "amax")
    exponents = (logits - largest[target]).exp()
    return exponents / torch.zeros_like(largest).index_add(0, target, exponents)[target]


@register
class RGAT(ProgramModel):
    """The R-GAT baseline (section 5): T(x) rounds of `RelationalAttention` with one set of weights.

        h_{0,n} = Embed(x_n), the output of the LSTM after the statement (hidden numbers, not 4 * hidden)
        h_{t,n} = LayerNorm(h_{t-1,n} + ELU(h~_{t,n})), without parameters: it keeps any number of rounds bounded

    Edges and their four types are those of the GGNN.

    Shapes:
        batch -> logits [program, class]
    """

    @dataclass(frozen=True, kw_only=True)
    class Config(ModelConfig):
        """Its options."""

        heads: int = option(1, "Number of attention heads; it divides `hidden`.", least=1, phrase="{} attention heads")

        def __post_init__(self) -> None:
            super().__post_init__()
            if self.hidden % self.heads:
                raise ValueError(f"heads is {self.heads}; it must divide hidden, {self.hidden}.")

    name: ClassVar[str] = "r-gat"
    title: ClassVar[str] = "R-GAT"
    records: ClassVar[frozenset[str]] = frozenset({"states"})
    state_parts: ClassVar[int] = 1

    config: Config

    def build(self, generator: torch.Generator) -> None:
        """See `ProgramModel.build`."""
        super().build(generator)
        self.attention = RelationalAttention(self.config.hidden, self.config.heads, EDGE_TYPES, generator)

    def forward(self, batch: Batch, *, record: frozenset[str] = frozenset()) -> Output:
        """See `ProgramModel.forward`."""
        edges = Edges.bidirectional(batch)
        h = self.start(batch)
        states = [h]
        for t in range(max(batch.steps.tolist(), default=0)):
            running = (t < batch.steps)[batch.node_program]
            h = torch.where(running[:, None], self.step(h, edges), h)
            if "states" in record:
                states.append(h)
        found = {"states": torch.stack(states)} if record else {}
        return Output({"value": self.output(h[batch.exits])}, recorded(found, record))

    def start(self, batch: Batch) -> Tensor:
        """h_{0,n}. [node, hidden]"""
        embedded: Tensor = self.cell(self.cell.zero_state(len(batch.true)), batch.node_tokens)
        return embedded[:, -self.config.hidden :]

    def step(self, h: Tensor, edges: Edges) -> Tensor:
        """h_{t,n} from h_{t-1,n}. [node, hidden]"""
        proposal = nn.functional.elu(self.attention(h, edges))
        return nn.functional.layer_norm(h + proposal, (self.config.hidden,))
