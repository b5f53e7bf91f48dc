"""What brings the members of a weight-update group together."""
