"""The course of a world: all that happens whatever a policy does."""
