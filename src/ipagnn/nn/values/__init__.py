"""How a model represents the values of variables."""
