class LocalClusterError(Exception):
    """Something the user can act on; the message says what, where, and what to do."""
