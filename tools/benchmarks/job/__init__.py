"""`fathom bench` on the local cluster, with a pair whose acceptance is known: does it find it?"""
