"""`make bench-pages`: what a pod costs the operator in a window: page, HTTP, share of the tuner."""
