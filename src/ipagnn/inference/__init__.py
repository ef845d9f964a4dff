"""Predictions and explanations: what the command line, the page and notebooks share."""
