"""SGLang's own test kits, run unmodified against the fake HTTP server."""
