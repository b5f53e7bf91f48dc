"""Guards: what can be known of a trainer before any engine runs, from its source or from a child process.

`refitcheck guard imports | actor | arguments | environment`; the rules ENV and ASYNC ask the same of an adapter that
says where its driver, its workers and its launch arguments are (`harness.guards.subjects`).
"""
