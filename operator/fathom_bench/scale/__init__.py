"""`fathom local bench-scale`: what one operator costs beside hundreds of resources."""
