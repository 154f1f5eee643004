"""Attention as a latent variable: tensors only, no files, no printing."""
