"""`make bench-engine`: what live depth is worth, and costs, on the real vLLM; no simulator."""
