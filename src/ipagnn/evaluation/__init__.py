"""Systematic generalisation, measured, drawn and reported.

`evaluate` lets a model predict every program of a set, `summarise` makes numbers of it, figures and report show them.
"""

from ipagnn.evaluation.benchmark import evaluate_on_test_set, test_recipe
from ipagnn.evaluation.evaluate import Evaluation, evaluate
from ipagnn.evaluation.pointer import PointerMetrics
from ipagnn.evaluation.summary import Summary, summarise

__all__ = [
    "Evaluation",
    "PointerMetrics",
    "Summary",
    "evaluate",
    "evaluate_on_test_set",
    "summarise",
    "test_recipe",
]
