"""Which driver survives which SGLang: cells, a table of them, and what an upgrade breaks."""
