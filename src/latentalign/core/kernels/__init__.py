"""Logits in bounded memory: how the quantities of core are computed."""
