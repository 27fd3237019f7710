"""Real vLLM on the CPU with a model pair of known acceptance, its traffic, and a stand-in."""
