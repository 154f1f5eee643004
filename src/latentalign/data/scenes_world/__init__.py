"""The world behind `latentalign.data.scenes`: things, their pictures, image regions, questions and answers."""
