"""`make bench-gpu`: live depth on a real vLLM, step by step, beside engines of a single depth."""
