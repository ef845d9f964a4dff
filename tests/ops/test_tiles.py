"""Matrix products in tiles, and passes that threads share."""

import numpy as np
import numpy.typing as npt
import pytest
import torch

from ipagnn.languages.arithmetic import Grammar, Lengths, Sampler
from ipagnn.models import EnvIPAGNN
from ipagnn.ops.pointer.cpu import environment, team
from ipagnn.ops.pointer.cpu.tiles import (
    BLOCK,
    GROUP,
    add_columns,
    multiply_rows,
    pack,
    padded,
    panel_width,
    panels_for,
)

TYPES = (np.float32, np.float64)


def buffer(rows: int, columns: int, kind: type, seed: int) -> npt.NDArray[np.floating]:
    """Rows that lie `padded` numbers apart; what is between them is no number."""
    found = np.full((rows, padded(columns, np.dtype(kind).itemsize)), np.nan, kind)
    found[:, :columns] = np.random.default_rng(seed).normal(size=(rows, columns))
    return found


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("rows", [1, 13, 14, 15, 44])
@pytest.mark.parametrize("transposed", [False, True])
def test_rows_are_multiplied_with_a_matrix(kind: type, rows: int, transposed: bool) -> None:
    inner, columns = 9, panel_width(np.dtype(kind).itemsize) + 5
    matrix = np.random.default_rng(1).normal(size=(inner, columns)).astype(kind)
    panels = panels_for(inner, columns, matrix.dtype)
    for p in range(len(panels)):
        pack(np.ascontiguousarray(matrix.T) if transposed else matrix, transposed, panels, p)
    x, out = buffer(rows + 5, inner, kind, 2), buffer(rows + 5, columns, kind, 3)
    before = out.copy()
    multiply_rows(x, 2, 2 + rows, panels, inner, out, 3, 0)
    wanted = x[2 : 2 + rows, :inner].astype(np.float64) @ matrix
    tolerance = 1e-12 if kind is np.float64 else 1e-5
    np.testing.assert_allclose(out[3 : 3 + rows, :columns], wanted, rtol=tolerance, atol=tolerance)
    np.testing.assert_array_equal(out[:3], before[:3])
    np.testing.assert_array_equal(out[3 + rows :], before[3 + rows :])
    multiply_rows(x, 2, 2 + rows, panels, inner, out, 3, 1)
    np.testing.assert_allclose(out[3 : 3 + rows, :columns], 2 * wanted, rtol=tolerance, atol=2 * tolerance)


def test_a_row_has_the_same_bits_beside_any_others() -> None:
    inner, columns = 100, 40
    panels = panels_for(inner, columns, np.dtype(np.float32))
    for p in range(len(panels)):
        pack(np.random.default_rng(1).normal(size=(inner, columns)).astype(np.float32), False, panels, p)
    x, together, apart = (buffer(33, n, np.float32, 2) for n in (inner, columns, columns))
    multiply_rows(x, 0, 33, panels, inner, together, 0, 0)
    for row in range(33):
        multiply_rows(x, row, row + 1, panels, inner, apart, row, 0)
    np.testing.assert_array_equal(together[:, :columns], apart[:, :columns])


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("rows", [1, BLOCK, 2 * BLOCK + 7])
def test_columns_are_multiplied_with_columns(kind: type, rows: int) -> None:
    width = panel_width(np.dtype(kind).itemsize)
    x, y = buffer(rows + 3, 17, kind, 1), buffer(rows + 3, 2 * width, kind, 2)
    sums = np.ones((2, 17, width), kind)
    add_columns(x, y, 1, 1 + rows, 17, 0, np.empty((GROUP, BLOCK, width), kind), sums)
    wanted = 1 + x[1 : 1 + rows, :17].astype(np.float64).T @ y[1 : 1 + rows, : 2 * width]
    found = np.concatenate([sums[0], sums[1]], axis=1)
    np.testing.assert_allclose(found, wanted, rtol=1e-4 if kind is np.float32 else 1e-10, atol=1e-4)


def test_any_number_of_threads_gives_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    grammar = Grammar(modulus=50, condition_modulus=5, initial_values=(0, 49), counters=2)
    model = EnvIPAGNN(hidden=48, width=24, grammar=grammar, seed=1)
    batch = model.collate(Sampler("full", Lengths.uniform(range(2, 12)), grammar=grammar, seed=5).table(0, 60))
    monkeypatch.setattr(environment, "LEAST_WORK", 1.0)
    asked = []
    together = team.run_together
    monkeypatch.setattr(
        environment, "run_together", lambda work, threads: (asked.append(threads), together(work, threads))
    )
    found, before = [], torch.get_num_threads()
    try:
        for threads in (1, 2, 3, 2):
            torch.set_num_threads(threads)
            model.zero_grad()
            loss = model.loss(model(batch, record=("likelihood",)), batch)
            loss.mean().backward()
            found.append([loss.detach(), *(p.grad for p in model.values.parameters() if p.grad is not None)])
    finally:
        torch.set_num_threads(before)
    assert asked == [1, 1, 2, 2, 3, 3, 2, 2]
    assert all(bool(gradient.abs().max() > 0) for gradient in found[0])
    for other in found[1:]:
        assert all(torch.equal(one, two) for one, two in zip(found[0], other, strict=True))
