"""Differential fuzzing: random calls to the fake and to SGLang's own code or server, until nothing differs."""
