"""The kernels behind `model(batch)` on a GPU, with gradients. Needs a CUDA GPU; skipped elsewhere."""

import copy

import pytest
import torch
from torch.nn.functional import cross_entropy

from ipagnn.languages.arithmetic.program import ProgramTable
from ipagnn.models import ProgramModel

from ..conftest import IP_CASES, Make

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")


def gradients(model: ProgramModel, table: ProgramTable, execution: str, *, half: bool) -> dict[str, torch.Tensor]:
    device = next(model.parameters()).device
    batch = model.collate(table).to(device)
    model.zero_grad()
    with torch.autocast(device.type, torch.bfloat16, enabled=half):
        logits = model(batch, execution=execution).logits.float()
    cross_entropy(logits, batch.target).backward()
    found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    return {"logits": logits.detach()} | found


@needs_gpu
@pytest.mark.parametrize("execution", ["triton", "hopper"])
@pytest.mark.parametrize(("name", "options"), IP_CASES)
def test_a_users_own_loop_gets_the_kernels(
    make: Make, short: ProgramTable, name: str, options: dict, execution: str
) -> None:
    exact = make(name, hidden=40, **options).float().cuda()
    half = execution == "hopper"
    if half and torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("needs a GPU of the Hopper generation")
    wanted = gradients(exact, short, "rows", half=False)
    found = gradients(copy.deepcopy(exact), short, execution, half=half)
    assert wanted.keys() == found.keys()
    for key, value in wanted.items():
        distance = (found[key] - value).norm() / value.norm()
        assert distance < (0.05 if half else 1e-3), (key, float(distance))


def test_kernels_say_why_they_do_not_run(make: Make, short: ProgramTable) -> None:
    model = make("ipa-gnn").float()
    batch = model.collate(short)
    for execution in ("triton", "hopper"):
        with pytest.raises(ValueError, match=f"'{execution}' cannot run this: the weights are on cpu"):
            model(batch, execution=execution)
        with pytest.raises(ValueError, match=f"'{execution}' cannot run this: it computes final states alone"):
            model(batch, execution=execution, record=("pointer",))
