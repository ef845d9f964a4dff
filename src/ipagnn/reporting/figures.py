"""The paper's figures by name."""

from collections.abc import Callable, Sequence
from typing import Final

from matplotlib.figure import Figure

from ipagnn.data.splits import TEST_SEED
from ipagnn.languages.arithmetic import Lengths, Program, ProgramKind, Sampler, parse
from ipagnn.models import ProgramModel
from ipagnn.reporting import paper
from ipagnn.reporting.figure_pointer import pointer_figure, trace_pointer
from ipagnn.reporting.figure_tables import paths_figure, representation_figure


def figure_4(model: ProgramModel) -> Figure:
    """The pointer on two programs with two initial values each."""
    return pointer_figure([trace_pointer(model, _parse(group)) for group in paper.POINTER])


def supplement(model: ProgramModel) -> Figure:
    """The pointer on the four programs of the supplement."""
    return pointer_figure([trace_pointer(model, [program]) for program in _parse(paper.SUPPLEMENT)])


def supplement_masked(model: ProgramModel) -> Figure:
    """The same, with a line masked in each."""
    pairs = zip(_parse(paper.SUPPLEMENT_MASKED), _parse(paper.SUPPLEMENT), strict=True)
    return pointer_figure([trace_pointer(model, [masked], [complete]) for masked, complete in pairs])


def given(model: ProgramModel, programs: Sequence[Program]) -> Figure:
    """The pointer on any programs, one below the other."""
    return pointer_figure([trace_pointer(model, [program]) for program in programs], columns=1)


def own_language(model: ProgramModel, task: ProgramKind) -> Figure:
    """The pointer on four programs of the model's own language, the first that have a loop and ten lines."""
    sampler = Sampler(task, Lengths.exact(10), model.config.grammar, TEST_SEED)
    drawn = sampler.table(0, 1_000)
    loops = [program for program in drawn if any(line.operation == "while >" for line in program.lines)]
    return pointer_figure([trace_pointer(model, [program]) for program in (loops or list(drawn))[:4]])


POINTER_FIGURES: Final[dict[str, tuple[ProgramKind, Callable[[ProgramModel], Figure]]]] = {
    "pointer": ("full", figure_4),
    "supplement": ("full", supplement),
    "supplement-masked": ("partial", supplement_masked),
}
"""Figures of what a model does, with the task that the model should be trained for."""


def representation(program: Program | None = None) -> Figure:
    """Figure 1, of the paper's program or another."""
    return representation_figure(program or parse(paper.REPRESENTATION))


def paths(program: Program | None = None, model: ProgramModel | None = None) -> Figure:
    """Figure 2, of the paper's program or another, with the decisions of a model if given."""
    return paths_figure(program or parse(paper.PATHS), model)


def _parse(sources: Sequence[str]) -> list[Program]:
    # Tokens do not hold the number after `%`, so a model of another language reads these programs with its own.
    return [parse(source) for source in sources]
