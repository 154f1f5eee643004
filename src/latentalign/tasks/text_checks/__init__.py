"""Checks of parallel text before training, for all tasks that read it."""
