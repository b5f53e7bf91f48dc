"""The reference refit client: known good, small, and what mutants are made from."""
