"""Inference on long programs: rows are found as execution goes."""
