"""Speed and memory of every objective, measured side by side: what `latentalign bench` runs."""
