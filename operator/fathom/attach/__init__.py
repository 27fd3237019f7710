"""Tuning vLLM pods that Fathom did not start: a SpeculationTuner owns none of them."""
