"""What calls a framework, inside its trainer processes: a module with `Rank(about)` each, and nothing of the harness.

`Rank` has set_weights(state, version), refit(), close(), and phase(name) where the table says so. `about` is rank,
ranks, engines ({name, url, tp, gpus, incarnation}), version (SGLang's), folder (this scenario's), settings.
"""
