"""Ways to an engine core: in process, over HTTP, and under SGLang's command line."""
