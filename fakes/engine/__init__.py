"""The simulated SGLang as executable state: `core.EngineCore` and what it is made of. No socket, file, thread or clock."""
