"""Systematic generalisation, measured, drawn and reported.

`evaluate` lets a model predict every program of a set, `summarise` makes numbers of it, figures and report show them.
"""

from typing import TYPE_CHECKING

from ipagnn._common.lazy import import_lazily

if TYPE_CHECKING:
    from ipagnn.evaluation.benchmark import build_test_recipe, evaluate_on_test_set
    from ipagnn.evaluation.evaluate import evaluate
    from ipagnn.evaluation.pointer import PointerMetrics
    from ipagnn.evaluation.results import Evaluation
    from ipagnn.evaluation.summary import Summary, summarise

__all__ = [
    "Evaluation",
    "PointerMetrics",
    "Summary",
    "build_test_recipe",
    "evaluate",
    "evaluate_on_test_set",
    "summarise",
]

import_lazily(__name__)
