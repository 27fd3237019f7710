"""What keeps the project going: the tiers of tests, a new vLLM, a release."""
