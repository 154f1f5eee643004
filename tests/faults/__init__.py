"""Faults that are put into trainings and run directories on purpose, one module a kind."""
