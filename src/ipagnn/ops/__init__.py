"""Executions of programs by models: tensors in, tensors out."""
