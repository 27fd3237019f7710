"""`python -m benchmarks scale`: what one operator costs beside hundreds of resources."""
