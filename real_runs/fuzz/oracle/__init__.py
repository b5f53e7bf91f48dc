"""SGLang's own weight-updater manager as an oracle: what runs in its interpreter, and the way there."""
