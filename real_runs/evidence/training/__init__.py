"""Evidence of a training run: its log, its metrics and what its launcher told, judged fail-closed.

What is unknown, missing or doubtful is refused, each with a line. `validating.refusals` is the whole of it.
"""
