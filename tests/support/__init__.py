"""Code that several test folders share; pytest finds it because `tests` is on its path (pyproject.toml)."""
