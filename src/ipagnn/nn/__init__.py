"""Layers that models are made of. `IPAGNNLayer` is for anyone's graphs."""

from ipagnn.data.graphs import Graphs, check_graphs
from ipagnn.nn.layer import Cell, FeatureCell, IPAGNNLayer, Walked

__all__ = ["Cell", "FeatureCell", "Graphs", "IPAGNNLayer", "Walked", "check_graphs"]
