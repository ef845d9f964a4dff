"""Execution along an instruction pointer on a GPU, in Triton."""
