"""Weights of masked lines, learned from partial programs."""

import numpy as np
import pytest

from ipagnn.languages.arithmetic import Grammar, Lengths, ProgramTable, Sampler, parse
from ipagnn.languages.arithmetic.tables import ValueTables
from ipagnn.training.mask_weights import fit_mask_weights

FEWER = Grammar(arithmetic_operations=("+=",), operands=(3, 5))


def test_the_statements_that_masks_were_are_found() -> None:
    tables = ValueTables.exact()
    programs = Sampler("partial", Lengths.exact(6), grammar=FEWER, seed=1).table(0, 600)
    weights = fit_mask_weights(tables, programs)
    assert weights.sum() == pytest.approx(1)
    drawn = np.isin(tables.choices[:, 0], 1001) & (tables.choices[:, 1] >= 3) & (tables.choices[:, 1] <= 5)
    assert weights[drawn].sum() > 0.95
    assert (weights[drawn] > 0.2).all()


def test_what_cannot_be_learned_from_is_refused() -> None:
    tables = ValueTables.exact()
    with pytest.raises(ValueError, match="one masked line each"):
        fit_mask_weights(tables, Sampler(seed=1).table(0, 3))
    impossible = ProgramTable.from_programs([parse("v0 = 1\n_\nv0 = 4")], [5])
    with pytest.raises(ValueError, match="gives any of the targets"):
        fit_mask_weights(tables, impossible)
