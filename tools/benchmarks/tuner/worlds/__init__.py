"""The format of worlds; those that are shipped, and those drawn at random."""
