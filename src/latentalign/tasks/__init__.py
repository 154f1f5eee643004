"""Tasks: what is trained, evaluated and served. `base` says what a task is, `registry` finds it by name."""
