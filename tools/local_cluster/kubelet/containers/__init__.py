"""What becomes of one container: its plan, its process, its probes, its restarts."""
