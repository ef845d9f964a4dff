from dataclasses import fields, replace

import pytest
import torch

from ipagnn.data import BATCH_FIELDS, Batch, Target, check_batch, collate
from ipagnn.languages.arithmetic import parse


@pytest.fixture
def batch() -> Batch:
    return collate([parse("v0 = 1\nif v0 % 10 > 3:\n  v0 += 2\nv0 -= 1"), parse("v0 = 3")], trace=True)


def test_every_tensor_is_declared() -> None:
    assert set(BATCH_FIELDS) == {field.name for field in fields(Batch)} - {"plans", "targets"}
    for field in BATCH_FIELDS.values():
        assert field.meaning.endswith(".")


@pytest.mark.parametrize("name", BATCH_FIELDS)
def test_wrong_type_or_size_of_a_field_is_named(batch: Batch, name: str) -> None:
    tensor = getattr(batch, name)
    with pytest.raises(ValueError, match=rf"^{name} is torch.float64"):
        check_batch(replace(batch, **{name: tensor.double()}))
    with pytest.raises(ValueError, match=rf"^{name} is .* axes"):
        check_batch(replace(batch, **{name: tensor[None]}))
    with pytest.raises(ValueError, match=r"has \d+ entries on axis|_offsets does not rise"):
        check_batch(replace(batch, **{name: torch.cat([tensor, tensor])}))


def test_targets_are_held_against_the_task(batch: Batch) -> None:
    ran = Target("ran", "mask", "node", read=lambda _, batch: batch.true >= 0)
    check_batch(replace(batch, targets={"ran": batch.true >= 0}), [ran])
    for targets, sentence in (
        ({}, r"The batch has the targets \[\]; the task declares \['ran'\]"),
        (
            {"ran": batch.true},
            r"ran is torch.int32 \[7\]; the task says torch.bool \[7\], one for each node",
        ),
        ({"ran": batch.true[:2] >= 0}, r"The target ran is torch.bool \[2\]"),
    ):
        with pytest.raises(ValueError, match=sentence):
            check_batch(replace(batch, targets=targets), [ran])


def test_targets_move_with_the_batch(batch: Batch) -> None:
    assert batch.to("meta").target.device == torch.device("meta")
    assert torch.equal(batch.target, torch.tensor([-1, -1]))


def test_plans_are_kept_until_a_field_changes(batch: Batch) -> None:
    graphs = batch.graphs
    assert batch.graphs is graphs
    assert batch.to("meta").graphs.successors.device == torch.device("meta")
    longer = replace(batch, steps=batch.steps + 1)
    assert torch.equal(longer.graphs.steps, graphs.steps + 1)


@pytest.mark.parametrize("bad", [-2, 100])
def test_indices_out_of_range_are_named(batch: Batch, bad: int) -> None:
    for name in ("true", "false", "trace"):
        with pytest.raises(ValueError, match=rf"^{name} holds indices"):
            check_batch(replace(batch, **{name: torch.full_like(getattr(batch, name), bad)}))


@pytest.mark.parametrize("bad", [[1, 4, 5], [0, 6, 5], [0, 4, 4]])
def test_offsets_that_do_not_rise_to_the_end_are_named(batch: Batch, bad: list[int]) -> None:
    with pytest.raises(ValueError, match=r"^line_offsets does not rise from 0 to 5"):
        check_batch(replace(batch, line_offsets=torch.tensor(bad, dtype=torch.int32)))
