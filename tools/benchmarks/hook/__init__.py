"""`make bench-hook`: what the hook costs the scheduler of the real vLLM, step by step."""
