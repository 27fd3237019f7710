"""Our tuner in the loop: simulated engines that serve along a course, counted with its noise."""
