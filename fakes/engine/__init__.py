"""The simulated SGLang as executable state: `core.EngineCore` and its parts. No socket, file, thread or clock."""
