"""Compiled code of the data room."""
