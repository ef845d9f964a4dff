"""Models whose answers are known."""

import torch

from ipagnn.models import ProgramModel, build_model


def decided(true: float) -> ProgramModel:
    """An IPA-GNN that takes the true branch with probability `true`, for any input."""
    model = build_model("ipa-gnn", hidden=8).eval()
    with torch.no_grad():
        branch = model.control.branch  # type: ignore[union-attr]
        for parameter in branch.parameters():
            parameter.zero_()
        branch.bias.copy_(torch.tensor([true, 1 - true]).log())
    return model
