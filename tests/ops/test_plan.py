"""The plan that kernels read must hold the rows of the batch, whatever their order."""

import cProfile
from itertools import pairwise

import numpy as np
import pytest

from ipagnn.data.splits import training_sampler
from ipagnn.models import build_model
from ipagnn.ops.pointer.rows import plan_rows
from ipagnn.ops.pointer.triton.plan import ROW_CHUNK, Plan


def values(programs: int, groups: int) -> tuple[np.ndarray, Plan]:
    """A number for each program that depends on all its rows and edges, computed as a kernel would."""
    table = training_sampler("full", 10, 3).table(0, programs)
    batch = build_model("ipa-gnn", hidden=8).collate(table)
    plan = Plan.build(batch.graphs, batch.node_tokens, groups=groups)
    offsets, first, codes = plan.offsets.numpy(), plan.arrival_offsets.numpy(), plan.arrivals.numpy()
    tokens, branches = plan.tokens.numpy(), plan.branches.numpy()
    sides = plan.true.numpy(), plan.false.numpy()
    rows = offsets[-1, -1]
    assert rows == len(batch.graphs.plan(plan_rows))
    state, mass = np.zeros(rows), np.zeros(rows)

    def arriving(destination: int) -> tuple[float, float]:
        total = weight = 0.0
        for code in codes[first[destination] : first[destination + 1]]:
            source, side = divmod(int(code), 2)
            assert sides[side][source] == destination
            share = mass[source] * ((0.7, 0.3)[side] if branches[source] else 1.0)
            total, weight = total + share * state[source], weight + share
        return total, weight

    for group in offsets:
        for t in range(len(group) - 1):
            for row in range(group[t], group[t + 1]):
                total, mass[row] = arriving(row) if t else (0.0, 1.0)
                state[row] = np.sin(total / mass[row] + tokens[row] @ (1, 2, 3, 0.5))
    return np.array([total / weight for total, weight in (arriving(rows + i) for i in range(programs))]), plan


@pytest.mark.parametrize("groups", [2, 7, 64])
def test_grouped_rows_compute_what_rows_in_order_of_steps_do(groups: int) -> None:
    expected, _ = values(40, 1)
    found, plan = values(40, groups)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    offsets = plan.offsets.numpy()
    assert (offsets[1:, 0] == offsets[:-1, -1]).all()
    assert offsets.shape == (groups, plan.capacity.steps + 1)


def test_no_group_takes_much_longer_than_the_others() -> None:
    _, plan = values(400, 10)
    rows = np.diff(plan.offsets.numpy(), axis=1)
    chunks = (-(-rows // ROW_CHUNK)).sum(axis=1)
    assert (rows.sum(axis=1) > 0).all()
    assert chunks.max() <= 1.15 * chunks.mean()
    assert chunks.sum() <= 1.5 * rows.sum() / ROW_CHUNK  # chunks are nearly full: like programs are together


def test_slots_are_sorted_by_token() -> None:
    _, plan = values(40, 7)
    used = 4 * int(plan.offsets[-1, -1])
    slots = plan.order.numpy()[:used]
    assert sorted(slots) == list(range(used))
    words = plan.tokens.numpy().reshape(-1)[slots]
    assert (np.diff(words) >= 0).all()
    chunks = plan.chunk_offsets.numpy()[: int(plan.chunks[0]) + 1]
    assert chunks[0] == 0
    assert chunks[-1] == used
    assert all(len(set(words[a:b])) == 1 for a, b in pairwise(chunks))


def test_preparing_a_batch_leaves_python_to_other_threads() -> None:
    """Threads that feed a GPU do one after the other what they do in Python. With 470 calls it had half the speed."""
    sampler = training_sampler("full", 10, 3)
    model = build_model("ipa-gnn", hidden=8)

    def prepare(start: int) -> Plan:
        batch = model.collate(sampler.table(start, 32))
        return Plan.build(batch.graphs, batch.node_tokens, batch.target, groups=4)

    prepare(0)
    profile = cProfile.Profile()
    profile.runcall(prepare, 32)
    assert sum(entry.callcount for entry in profile.getstats()) < 350
