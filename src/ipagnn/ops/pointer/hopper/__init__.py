"""Execution along an instruction pointer on Hopper GPUs, in CUDA C++."""
