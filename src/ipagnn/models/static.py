"""Inference on long programs: nothing is unrolled, and the host does nothing between steps.

On a CUDA GPU this is the way to run any model on programs of thousands of steps. Models with a pointer compute the
nodes where there is mass (`static_cuda`), sequence models a row for each program (the same), all others every node
(`static_dense`).
"""

from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, TypeGuard

import torch

from ipagnn.data.collate import collate
from ipagnn.data.contract import Batch
from ipagnn.languages.arithmetic.program import Program, ProgramTable
from ipagnn.models.base import ProgramModel, rows_of
from ipagnn.models.ipa_gnn import IPAGNN
from ipagnn.models.message_passing import MessagePassing
from ipagnn.models.output import Output, recorded
from ipagnn.models.r_gat import RGAT
from ipagnn.models.sequence import SequenceModel
from ipagnn.models.static_dense import run_all_nodes
from ipagnn.ops.pointer.packed import Packed
from ipagnn.ops.pointer.streaming.plan import PointerPlan, SequencePlan
from ipagnn.ops.pointer.unpack import unpack

if TYPE_CHECKING:
    from ipagnn.ops.pointer.streaming.launcher import Precision


def collate_static(model: ProgramModel, programs: ProgramTable | Sequence[Program]) -> Batch:
    """The batch of `programs` for `run_static`: with the rows of sequences, and without any others."""
    config = model.config
    return collate(
        programs,
        model.rows if isinstance(model, SequenceModel) else None,
        config.budget,
        modulus=config.grammar.modulus,
        condition_modulus=config.grammar.condition_modulus,
        indent=config.indent,
    )


def _follows_pointer(model: ProgramModel) -> TypeGuard[IPAGNN]:
    return isinstance(model, IPAGNN) and (model.config.execution == "packed" or model.config.prune > 0)


def runs_static(model: ProgramModel) -> bool:
    """Whether `run_static` can run a model where it is: on a GPU, with the tools for it, and in float32."""
    weight = model.cell.embedding
    if weight.device.type != "cuda" or weight.dtype != torch.float32:
        return False
    if _follows_pointer(model) or (isinstance(model, SequenceModel) and model.config.execution == "packed"):
        return find_spec("triton") is not None
    return isinstance(model, MessagePassing | RGAT)


def run_static(
    model: ProgramModel, batch: Batch, *, record: Iterable[str] = (), precision: "Precision" = "tf32x3"
) -> Output:
    """What a model says about a batch, exactly (but for `prune` in its configuration) and without gradients.

    Args:
        model: The model.
        batch: The programs, on the model's device, from `collate_static`.
        record: Any of `pointer`, `branch` and `dropped`, if the model records it.
        precision: Of matrix products, for models with a pointer and sequence models; see `static_cuda.Precision`.
    """
    record = frozenset(record)
    if _follows_pointer(model):
        from ipagnn.ops.pointer.streaming.launcher import follow_pointer

        followed = follow_pointer(
            model.cell,
            model.control.branch,
            PointerPlan.of(batch),
            len(batch),
            hard=model.hard,
            normalise=model.config.normalise,
            prune=model.config.prune,
            trace=bool(record & {"pointer", "branch"}),
            precision=precision,
        )
        found = {"dropped": followed.dropped}
        if followed.pointer is not None and followed.branch is not None:
            found |= {"pointer": followed.pointer, "branch": followed.branch}
        return Output({"value": model.output(followed.final)}, recorded(found, record))
    if isinstance(model, SequenceModel):
        from ipagnn.ops.pointer.streaming.launcher import read_sequences

        assert model.rows is not None
        rows = rows_of(batch, model.rows)
        final = read_sequences(model.cell, SequencePlan.of(rows, len(batch)), precision=precision)
        packed = Packed(final, *_undecided(len(rows), final))
        found = unpack(packed, rows, batch, record - {"states"}, normalise=False)
        return Output({"value": model.output(final)}, recorded(found, record))
    return run_all_nodes(model, batch, record=record)


def _undecided(rows: int, like: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """mass, shares, states and proposals of rows that decide nothing; the states were not kept."""
    shares = torch.eye(1, 2, dtype=like.dtype, device=like.device).expand(rows, 2)
    return like.new_ones(rows), shares, like[:0], like[:0]
