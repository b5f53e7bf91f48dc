"""Reports of a run: text, JSON, Markdown, JUnit."""
