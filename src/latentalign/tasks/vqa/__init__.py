"""Visual question answering with a latent image region for every question."""
