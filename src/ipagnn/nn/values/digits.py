"""Values as decimal digits: a belief for each digit, and statements that are transducers over digits."""

from collections.abc import Iterator
from typing import ClassVar, Final, NamedTuple

import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, one_hot

from ipagnn.data.contract import Batch
from ipagnn.languages.arithmetic.automata import DIGITS, Automaton, extract, extract_pairs
from ipagnn.languages.arithmetic.statements import COMPARISON
from ipagnn.languages.arithmetic.vocabulary import ASSIGN, OPERATION, OPERATIONS
from ipagnn.nn.targets import MAX_CLASSES
from ipagnn.nn.values.base import Values

MAX_DIGITS: Final = 18
"""Digits of the largest numbers that 64 bits hold."""
HALTING_NOISE: Final = 1.5
"""Deviation of the noise on the logits of halting, times that of the noise on states."""
READING_COST: Final = 0.01
"""What training pays, in nats, for each digit after the first that a condition reads."""
_ASSIGN: Final = ASSIGN - OPERATION
_LEAST: Final = 1e-30
"""Added to probabilities before their logarithm is taken."""


class Digits(Values):
    """One belief for each decimal digit, least significant first, and one transducer for every statement.

    The transducer reads digit i of the variable (the belief d_i) and of the operand (u; k is its lowest digit), and
    keeps a belief c_i over latent states, which begins in state 0. E embeds digits, S states:

        h_i     = gelu(W E d_i * (1 + g_op + G E_k + U E_u) + V S c_i * (1 + g'_op + G' E_k) + o_op + O E_k + Q E_u)
        h_i     = h_i + gelu(L h_i), twice, with layers of their own
        d'_i    = Softmax(Dense(h_i))
        c_{i+1} = Softmax(Dense(h_i) + noise)                       in training
                = the likeliest of Dense(h_i)                       otherwise
        halt_i  = Sigmoid(Dense(h_i) + noise) in training, otherwise 0 or 1; 1 at the last digit
        b       = sum over i of halt_i · (product over j < i of 1 - halt_j) · Softmax(Dense(h_i))

    A literal is read without d_i. A condition reads digits with a pointer of its own: with probability halt_i it stops
    at digit i. Training pays a little for each digit that is read, so that conditions stop where they can; numbers of
    one digit among the widths of training make them right at the first.

    The noise makes states discrete: what a state says must survive it. It is drawn from a generator that is seeded by
    the batch, and so is the number of digits that are worked with in training (`widths`). Arithmetic modulo a smaller
    power of ten agrees on the lower digits, and only those are scored. Without training, numbers have as many digits
    as the modulus, and for a number that is known a statement is the finite automaton that `automaton` writes down.

    Args:
        modulus: A power of ten; values are taken modulo this.
        hidden: Width of h.
        width: Width of the embeddings.
        states: Number of latent states.
        widths: Numbers of digits that are worked with in training, one of them drawn for each batch.
        generator: Draws the weights.
        target_digits: Digits of a target that training scores, the lowest ones.

    Attributes:
        noise: Deviation of the noise on states, in training; 0 for none.
    """

    axes: ClassVar[tuple[str, ...]] = ("place", "digit")

    def __init__(
        self,
        modulus: int,
        hidden: int,
        width: int,
        states: int,
        widths: tuple[int, ...],
        generator: torch.Generator,
        target_digits: int = MAX_DIGITS,
    ) -> None:
        super().__init__()
        places = places_of(modulus)
        if not places:
            raise ValueError(
                f"The modulus is {modulus:,}; values as digits need a power of ten from 10 to 10^{MAX_DIGITS}. "
                "Choose such a modulus, or values as classes."
            )
        if not widths or min(widths) < 1 or max(widths) > MAX_DIGITS:
            raise ValueError(f"widths is {widths}; it must be at least one number of digits, from 1 to {MAX_DIGITS}.")
        self.modulus = modulus
        self.places = places
        self.states = states
        self.widths = widths
        self.target_digits = target_digits
        self.noise = 0.0
        self._read: list[Tensor] = []
        self._working = places
        self._generator: torch.Generator | None = None

        def normal(*shape: int, deviation: float = 1.0) -> nn.Parameter:
            return nn.Parameter(torch.empty(shape).normal_(0, deviation, generator=generator))

        def uniform(*shape: int, inputs: int) -> nn.Parameter:
            bound = inputs**-0.5
            return nn.Parameter(torch.empty(shape).uniform_(-bound, bound, generator=generator))

        operations = len(OPERATIONS)
        self.embedding = normal(DIGITS, width, deviation=width**-0.5)  # E
        self.state_embedding = normal(states, width, deviation=width**-0.5)  # S
        self.read = uniform(width, hidden, inputs=width)  # W
        self.read_state = uniform(width, hidden, inputs=width)  # V
        self.gate_operation = normal(operations, hidden)  # g
        self.gate_operand = uniform(width, hidden, inputs=width)  # G
        self.gate_digit = uniform(width, hidden, inputs=width)  # U
        self.state_gate_operation = normal(operations, hidden)  # g'
        self.state_gate_operand = uniform(width, hidden, inputs=width)  # G'
        self.offset_operation = normal(operations, hidden)  # o
        self.offset_operand = uniform(width, hidden, inputs=width)  # O
        self.offset_digit = uniform(width, hidden, inputs=width)  # Q
        self.layers = uniform(2, hidden, hidden, inputs=hidden)  # L
        self.layer_biases = uniform(2, 1, hidden, inputs=hidden)
        self.write = uniform(hidden, DIGITS, inputs=hidden)  # Dense of d'
        self.write_bias = uniform(DIGITS, inputs=hidden)
        self.follow = uniform(hidden, states, inputs=hidden)  # Dense of c
        self.follow_bias = uniform(states, inputs=hidden)
        self.branch = uniform(hidden, 2, inputs=hidden)  # Dense of b
        self.branch_bias = uniform(2, inputs=hidden)
        self.halt = uniform(hidden, 1, inputs=hidden)  # Dense of halt
        self.halt_bias = uniform(1, inputs=hidden)

    def disturb(self, noise: float) -> None:
        """See `Values.disturb`."""
        self.noise = noise

    def cost(self) -> Tensor | float:
        """`READING_COST` for each digit that conditions of the last batch read after the first."""
        return READING_COST * torch.stack(self._read).sum() if self._read else 0.0

    def begin(self, batch: Batch) -> None:
        """Draw the number of digits to work with, and seed the noise, from the batch; see `Values.begin`."""
        self._read = []
        if not self.training:
            self._working, self._generator = self.places, None
            return
        self._working, seed = self.drawn_width(batch)
        self._generator = torch.Generator(batch.node_tokens.device).manual_seed(seed)

    def drawn_width(self, batch: Batch) -> tuple[int, int]:
        """The number of digits that training works with on a batch, and the seed of its noise."""
        tokens = batch.node_tokens.flatten().long()
        seed = int((tokens * torch.arange(1, len(tokens) + 1, device=tokens.device)).sum())
        drawn = torch.Generator().manual_seed(seed)
        return self.widths[int(torch.randint(len(self.widths), (), generator=drawn))], seed

    def known(self, value: Tensor) -> Tensor:
        """See `Values.known`."""
        return one_hot(self._digits(value), DIGITS).to(self.embedding.dtype)

    def literal(self, operand: Tensor) -> Tensor:
        """See `Values.literal`."""
        return self._written(torch.full_like(operand, _ASSIGN), operand, None)

    def statement(self, operation: Tensor, operand: Tensor, view: Tensor) -> Tensor:
        """See `Values.statement`."""
        return self._written(operation, operand, view)

    def condition(self, operation: Tensor, operand: Tensor, view: Tensor) -> Tensor:
        """See `Values.condition`. The logits are logarithms of probabilities."""
        reads = view.new_ones(len(view), 1)
        decided = view.new_zeros(len(view), 2)
        for place, h in enumerate(self._hidden(operation, operand, view)):
            halts = reads
            if place < self._working - 1:
                logits = self._disturbed(torch.addmm(self.halt_bias, h, self.halt), HALTING_NOISE)
                halts = reads * (logits.sigmoid() if self.training else (logits > 0).to(logits.dtype))
            decided = decided + halts * torch.addmm(self.branch_bias, h, self.branch).softmax(dim=1)
            reads = reads - halts
            if self.training and place < self._working - 1:
                self._read.append(reads.sum())
        return (decided + _LEAST).log()

    def probabilities(self, belief: Tensor) -> Tensor:
        """See `Values.probabilities`. In training, of the digits that are worked with."""
        if self.modulus > MAX_CLASSES:
            raise ValueError(
                f"The modulus is {self.modulus:,}, too large to give every value a probability; the most is "
                f"{MAX_CLASSES:,}. Run such programs over the automata of the model."
            )
        joint = belief[:, 0]
        for place in range(1, self.places):  # digits are independent
            upper = belief[:, place] if place < belief.shape[1] else belief.new_ones(1, DIGITS)
            joint = (upper[:, :, None] * joint[:, None]).flatten(1)
        return joint

    def likeliest(self, belief: Tensor) -> tuple[Tensor, Tensor]:
        """See `Values.likeliest`."""
        probability, digit = belief.max(dim=2)
        return (digit * self._powers(belief.shape[1], digit)).sum(dim=1), probability.prod(dim=1)

    def likelihood(self, belief: Tensor, target: Tensor) -> Tensor:
        """See `Values.likelihood`. In training, of the digits that are worked with, and at most `target_digits`."""
        places = min(self.places, belief.shape[1], self.target_digits if self.training else self.places)
        digits = target[:, None] // self._powers(places, target) % DIGITS
        return belief[:, :places].gather(2, digits[:, :, None]).squeeze(2).prod(dim=1)

    @torch.no_grad()
    def automaton(self, operation: int, operand: int | None) -> Automaton:
        """What a statement does, as a finite automaton with as few states as can be.

        It is exact, not an estimate: outside of training, states are discrete, and so are the digits of numbers that
        are known.

        Args:
            operation: An operation id.
            operand: A number; None for an automaton that reads the digits of the operand, too.
        """
        device = self.embedding.device
        pairs = torch.arange(DIGITS if operand is not None else DIGITS * DIGITS, device=device)
        read = one_hot(pairs % DIGITS, DIGITS).to(self.embedding.dtype)
        operations = torch.full_like(pairs, operation - OPERATION)

        def cell(state: int, beside: Tensor, lowest: Tensor) -> tuple[npt.ArrayLike, npt.ArrayLike, npt.ArrayLike]:
            c = one_hot(torch.full_like(pairs, state), self.states).to(read.dtype)
            seen = None if operation == ASSIGN else read[:, None]
            h = self._cell(self._read_digits(operations, lowest, beside[:, None], seen), 0, c)
            follow = torch.addmm(self.follow_bias, h, self.follow).argmax(dim=1).numpy(force=True)
            if operation not in COMPARISON:
                gives = torch.addmm(self.write_bias, h, self.write).argmax(dim=1)
                return gives.numpy(force=True), follow, torch.zeros_like(gives).bool().numpy(force=True)
            decides = torch.addmm(self.branch_bias, h, self.branch).argmax(dim=1) == 0
            stops = torch.addmm(self.halt_bias, h, self.halt)[:, 0] > 0
            return decides.numpy(force=True), follow, stops.numpy(force=True)

        def of_number(state: int, digit: int) -> tuple[npt.ArrayLike, npt.ArrayLike, npt.ArrayLike]:
            assert operand is not None
            return cell(state, torch.full_like(pairs, digit), torch.full_like(pairs, operand % DIGITS))

        def of_pairs(state: int, lowest: int | None) -> tuple[npt.ArrayLike, npt.ArrayLike, npt.ArrayLike]:
            beside = pairs // DIGITS
            return cell(state, beside, beside if lowest is None else torch.full_like(pairs, lowest))

        if operand is None:
            return extract_pairs(operation, of_pairs).minimal()
        return extract(operation, operand, of_number).minimal()

    def _written(self, operation: Tensor, operand: Tensor, view: Tensor | None) -> Tensor:
        """The digits that a statement writes. [row, place, digit]"""
        h = torch.stack(list(self._hidden(operation, operand, view)), dim=1)
        return (h @ self.write + self.write_bias).softmax(dim=2)

    def _hidden(self, operation: Tensor, operand: Tensor, view: Tensor | None) -> Iterator[Tensor]:
        """All h_i, place by place. [row, hidden] each"""
        digits = operand if operand.is_floating_point() else self._digits(operand)
        if view is not None and operand.is_floating_point():
            view = view * (operation != _ASSIGN)[:, None, None]  # `v = w` does not depend on what v was
        reading = self._read_digits(operation, digits[:, 0], digits, view)
        state = one_hot(operation.new_zeros(len(digits)), self.states).to(self.embedding.dtype)
        for place in range(self._working):
            h = self._cell(reading, place, state)
            yield h
            if place < self._working - 1:
                logits = self._disturbed(torch.addmm(self.follow_bias, h, self.follow), 1.0)
                if self.training:
                    state = logits.softmax(dim=1)
                else:
                    state = one_hot(logits.argmax(dim=1), self.states).to(logits.dtype)

    def _read_digits(self, operation: Tensor, lowest: Tensor, digits: Tensor, view: Tensor | None) -> "_Reading":
        """What of the equation does not depend on states, for all places at once.

        Args:
            operation: Of each row. [row]
            lowest: Lowest digit of the operand, or a belief in it. [row], or [row, digit]
            digits: All its digits. [row, place], or [row, place, digit]
            view: The digits of the variable; None if they are not read. [row, place, digit]
        """
        offset = self.offset_operation[operation] + _look_up(self.embedding @ self.offset_operand, lowest)
        state_gate = 1 + self.state_gate_operation[operation]
        state_gate = state_gate + _look_up(self.embedding @ self.state_gate_operand, lowest)
        beside = digits.transpose(0, 1)
        offsets = (offset + _look_up(self.embedding @ self.offset_digit, beside)).unbind()
        states = self.state_embedding @ self.read_state
        if view is None:
            return _Reading(states, state_gate, offsets, (), ())
        gate = 1 + self.gate_operation[operation] + _look_up(self.embedding @ self.gate_operand, lowest)
        gates = (gate + _look_up(self.embedding @ self.gate_digit, beside)).unbind()
        seen = (view.transpose(0, 1) @ (self.embedding @ self.read)).unbind()
        return _Reading(states, state_gate, offsets, gates, seen)

    def _cell(self, reading: "_Reading", place: int, state: Tensor) -> Tensor:
        """What follows from one place: h; without digits to read, that of E d = 0. [row, hidden]"""
        h = torch.addcmul(reading.offsets[place], state @ reading.states, reading.state_gate)
        if reading.seen:
            h = torch.addcmul(h, reading.seen[place], reading.gates[place])
        h = gelu(h)
        for layer, bias in zip(self.layers, self.layer_biases, strict=True):
            h = h + gelu(torch.addmm(bias, h, layer))
        return h

    def _disturbed(self, logits: Tensor, times: float) -> Tensor:
        """Logits with noise, in training."""
        if not self.training or not self.noise:
            return logits
        noise = torch.randn(logits.shape, generator=self._generator, dtype=logits.dtype, device=logits.device)
        return logits + times * self.noise * noise

    def _digits(self, number: Tensor) -> Tensor:
        """The digits of numbers that are worked with, least significant first. [row, place]"""
        return number[:, None] // self._powers(self._working, number) % DIGITS

    def _powers(self, places: int, like: Tensor) -> Tensor:
        """Powers of ten: the weight of each place. [place]"""
        return torch.tensor([DIGITS**place for place in range(places)], dtype=torch.int64, device=like.device)


class _Reading(NamedTuple):
    """What a transducer reads, worked out for all places.

    Attributes:
        states: What each state adds. [state, hidden]
        state_gate: Its gate. [row, hidden]
        offsets, gates, seen: Of each place: what is added, and what the digit adds with its gate. [row, hidden] each
    """

    states: Tensor
    state_gate: Tensor
    offsets: tuple[Tensor, ...]
    gates: tuple[Tensor, ...]
    seen: tuple[Tensor, ...]


def _look_up(table: Tensor, digit: Tensor) -> Tensor:
    """The rows of a table for digits, or their mean for beliefs in digits. [row, hidden]"""
    return digit @ table if digit.is_floating_point() else table[digit]


def places_of(modulus: int) -> int:
    """How many digits numbers modulo a power of ten have; 0 if `modulus` is none, or has too many."""
    places = len(str(modulus)) - 1
    return places if modulus == DIGITS**places and places <= MAX_DIGITS else 0
