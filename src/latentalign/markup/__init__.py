"""Markup transfer: HTML, XML and placeholders of a sentence are moved to its translation along word links."""
