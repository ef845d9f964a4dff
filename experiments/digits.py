"""What makes values as digits hold for numbers of any size: one run per row, each with one change.

    python experiments/digits.py runs/digits [--only noise-0,summed]
    python experiments/digits.py runs/digits --table

The full model is the preset `numbers`; seeds are rows too. A row trains in a folder of its own, which a second call
resumes or reads. The table has, for each row, the arithmetic statements whose automata are not the true ones, and the
conditions that are wrong on random numbers of 1 to 18 digits.
"""

import random
from typing import ClassVar, Final

import torch
from ablation import Cells, Change, Row, main
from torch import Tensor

from ipagnn.languages.arithmetic.automata import prove
from ipagnn.languages.arithmetic.statements import COMPARISON, MODULAR, compare
from ipagnn.languages.arithmetic.tables import grammar_statements
from ipagnn.languages.arithmetic.vocabulary import OPERATION
from ipagnn.models import ProgramModel, register
from ipagnn.models.env_ipa_gnn import EnvIPAGNN
from ipagnn.nn.values import digits
from ipagnn.nn.values.digits import Digits
from ipagnn.training import TrainConfig
from ipagnn.training.presets import preset

NUMBERS: Final = 500
"""Random numbers that each condition is asked about."""


class LastState(Digits):
    """Conditions decide at the last digit."""

    def condition(self, operation: Tensor, operand: Tensor, view: Tensor) -> Tensor:
        """See `Values.condition`."""
        *_, h = self._hidden(operation, operand, view)
        return torch.addmm(self.branch_bias, h, self.branch)


class SummedEvidence(Digits):
    """Every digit adds its evidence for true and for false."""

    def condition(self, operation: Tensor, operand: Tensor, view: Tensor) -> Tensor:
        """See `Values.condition`."""
        places = [torch.addmm(self.branch_bias, h, self.branch) for h in self._hidden(operation, operand, view)]
        return torch.stack(places).sum(dim=0)


class FreeReading(Digits):
    """Reading on costs nothing."""

    def cost(self) -> float:
        """See `Values.cost`."""
        return 0.0


class _Variant(EnvIPAGNN):
    """The environment IPA-GNN with other digits."""

    values_class: ClassVar[type[Digits]] = Digits

    def build(self, generator: torch.Generator) -> None:
        """See `ProgramModel.build`."""
        super().build(generator)
        self.values.__class__ = self.values_class  # the same weights, read in another way


@register
class ReadsLastState(_Variant):
    """Conditions decide at the last digit."""

    name: ClassVar[str] = "digits-last-state"
    values_class: ClassVar[type[Digits]] = LastState


@register
class ReadsSum(_Variant):
    """Conditions sum the evidence of all digits."""

    name: ClassVar[str] = "digits-summed"
    values_class: ClassVar[type[Digits]] = SummedEvidence


@register
class ReadsFreely(_Variant):
    """Reading on costs nothing."""

    name: ClassVar[str] = "digits-free-reading"
    values_class: ClassVar[type[Digits]] = FreeReading


def seeded(seed: int) -> Change:
    """Another seed."""
    return lambda config: config.replace(seed=seed)


def options(**changed: object) -> Change:
    """Other options of the model."""
    return lambda config: config.replace(model=config.model.replace(**changed))


def named(model: str) -> Change:
    """The model of that name, with the same options."""

    def change(config: TrainConfig) -> TrainConfig:
        stored = config.to_dict()
        stored["model"]["name"] = model
        return TrainConfig.from_dict(stored)

    return change


ROWS: Final[dict[str, Row]] = {
    **{f"seed-{seed}": Row(f"the full model, seed {seed}", seeded(seed)) for seed in range(5)},
    "last-state": Row("conditions decide at the last digit", named("digits-last-state")),
    "summed": Row("conditions sum the evidence of all digits", named("digits-summed")),
    "free-reading": Row("conditions stop where they like: reading on costs nothing", named("digits-free-reading")),
    **{f"noise-{x:g}": Row(f"noise {x:g} (full: 1.6)", options(noise=x)) for x in (0.0, 0.7, 2.0)},
    "noise-at-once": Row("noise in the first stage of three lines, not the second", options(noise_stage=2)),
    **{f"states-{x}": Row(f"{x} states (full: 32)", options(states=x)) for x in (12, 16, 64)},
    "widths-5": Row("5 digits in training (full: 1, 3 and 5 in turn)", options(widths=(5,))),
    "widths-3-5": Row("3 and 5 digits in training", options(widths=(3, 5))),
    "widths-1-3-5-8": Row("1, 3, 5 and 8 digits in training", options(widths=(1, 3, 5, 8))),
    **{f"target-{x}": Row(f"targets of {x} digits (full: 5)", options(target_digits=x)) for x in (3, 4)},
}


def measure(model: ProgramModel) -> Cells:
    """The statements that a model has wrong."""
    assert isinstance(model, EnvIPAGNN)
    assert isinstance(model.values, Digits)
    grammar = model.config.grammar
    statements = [(operation, operand) for operation, operand in grammar_statements(grammar).tolist()]
    arithmetic = [each for each in statements if each[0] not in COMPARISON]
    proofs = prove(model.automata(arithmetic), grammar)
    drawn = random.Random(0)
    numbers = [drawn.randrange(10 ** drawn.randint(1, digits.MAX_DIGITS)) for _ in range(NUMBERS)]
    wrong = 0
    with torch.no_grad():
        model.values.begin(model.collate([]))
        known = model.values.view(model.values.known(torch.tensor(numbers)))
        for operation, operand in statements:
            if operation not in MODULAR:
                continue
            asked = (torch.tensor([operation - OPERATION]), torch.tensor([operand]))
            holds = model.values.condition(*(x.expand(NUMBERS) for x in asked), known).argmax(dim=1) == 0
            true = [compare(COMPARISON[operation], x % grammar.condition_modulus, operand) for x in numbers]
            wrong += holds.tolist() != [bool(x) for x in true]
    conditions = sum(operation in MODULAR for operation, _ in statements)
    return {
        f"arithmetic wrong, of {len(arithmetic)}": sum(proof.disagreement is not None for proof in proofs),
        "most states": max(len(proof.automaton) for proof in proofs),
        f"conditions wrong, of {conditions}": wrong,
    }


if __name__ == "__main__":
    main(__doc__, ROWS, preset("numbers"), measure)
