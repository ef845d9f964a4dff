"""Layers that models are made of. `IPAGNNLayer` is for anyone's graphs."""

from typing import TYPE_CHECKING

from ipagnn._common.lazy import import_lazily

if TYPE_CHECKING:
    from ipagnn.data.graphs import Graphs, check_graphs
    from ipagnn.nn.layer import Cell, FeatureCell, IPAGNNLayer, Walked

__all__ = ["Cell", "FeatureCell", "Graphs", "IPAGNNLayer", "Walked", "check_graphs"]

import_lazily(__name__)
