"""The suites on real engines: environments, servers, the CPU lane, and recordings of what the real SGLang answers."""
