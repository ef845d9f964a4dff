"""Compiled code that lays out message passing."""
