"""`fathom bench`: what is asked becomes a plan, the plan a Job, and what the Job says a table."""
