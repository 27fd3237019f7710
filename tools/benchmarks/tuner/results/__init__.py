"""What came of it: scores, and what is written and shown of them."""
