"""Damaged files for every reader of the project."""
