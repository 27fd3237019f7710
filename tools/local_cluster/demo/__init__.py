"""The demo: live depth against the user's static depth, on this machine, in one run."""
