"""Learning to execute programs with instruction pointer attention graph neural networks."""

__version__ = "0.1.0"
