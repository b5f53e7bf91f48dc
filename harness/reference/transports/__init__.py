"""Ways in which weights travel from trainer ranks to engines."""
