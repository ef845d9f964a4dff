"""Compiled code of the language."""
