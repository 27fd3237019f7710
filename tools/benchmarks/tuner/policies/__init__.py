"""The policies that ours is compared with; each picks a depth per batch bucket and window."""
