"""Execution along an instruction pointer on a CPU."""
