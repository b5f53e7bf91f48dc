"""Systems under test: the adapter protocol, its loader, and adapters for public frameworks."""
