"""A fleet in simulated time, to judge the tuner by; its worlds share no code with the tuner."""
