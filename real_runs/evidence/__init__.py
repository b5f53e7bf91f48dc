"""Evidence bundles: what a run on a real engine saw, kept so that anybody can judge it again without that engine."""
