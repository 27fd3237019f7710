"""Worlds that serve requests one by one: what users get, and whether the tuner tells the truth."""
