"""Compiled code shared by the executions."""
