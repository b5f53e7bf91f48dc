"""The simulated SGLang, and the fakes around it: worlds, fronts, trainers, transports. Imports nothing of ours."""
