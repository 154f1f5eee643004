"""Plain modules: latent attention as a drop-in, output heads, recurrent stacks."""
