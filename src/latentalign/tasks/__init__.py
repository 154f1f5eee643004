"""Tasks: what is trained, evaluated and shown, one folder each."""
