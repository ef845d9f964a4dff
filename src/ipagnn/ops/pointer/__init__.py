"""Execution along an instruction pointer."""
