"""Latent alignment around a model that somebody already has; see `latentalign.wrap`."""
