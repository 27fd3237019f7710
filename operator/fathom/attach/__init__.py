"""Tuning vLLM pods that somebody else started: a SpeculationTuner owns none of them."""
