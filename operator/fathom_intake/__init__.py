"""Takes in a draft that was trained elsewhere: copies, verifies and stores what a trainer left.

Runs in the engine's own image, delivered by a ConfigMap: nothing but the standard library and
numpy, which vLLM brings along, and Python from 3.10 on. No text of the trainer's is repeated, in
the log or in the message, but the id of a repository.
"""
