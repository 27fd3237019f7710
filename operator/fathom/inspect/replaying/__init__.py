"""`fathom replay`: what the tuner would have done with recorded metrics."""
