"""What training steps tell a model, and what they read of one."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from ipagnn.data.contract import Batch
from ipagnn.data.graphs import Graphs


@dataclass(frozen=True, slots=True)
class StageProgress:
    """Where training is, as a model may want to know (see `ProgramModel.on_step`).

    Attributes:
        stage: Number of the stage, from 1.
        stages: How many there are; 1 in a run without stages.
        progress: Share of the stage's steps that were taken; of the most steps where its accuracy may end it. Below 1.
        step: Steps taken in the whole run.
    """

    stage: int
    stages: int
    progress: float
    step: int


@dataclass(frozen=True, slots=True)
class PointerKernels:
    """A model whose statement cell walks an instruction pointer, and whose output layer reads the final states.

    Attributes:
        walked: The graphs that are walked for a batch, and the tokens of each node's statement.
        hard, normalise: As in `ipagnn.nn.IPAGNNLayer`.
        branch: Weight and bias of the branch layer; empty where nothing is decided.
    """

    walked: Callable[[Batch], tuple[Graphs, Tensor]]
    hard: bool = False
    normalise: bool = False
    branch: tuple[Tensor, ...] = ()
