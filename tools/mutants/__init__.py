"""Mutation testing: breaks the code in small ways, and asks whether a test of its module notices.

    make mutants MODULE=rollout SEED=1

What is mutated, and what a mutant becomes, is Cosmic Ray's (and three operators in its manner, in
`operators.py`). Which mutants, and how they are run, is ours: a sample drawn by a seed, each mutant
against only those tests that execute its line, the quick ones first, in a copy of the checkout.
mutmut was tried too: it leaves constants outside functions alone, which is where this code keeps
its bounds, and it rewrites every function, which what is delivered as text does not survive.

An interrupted run goes on where it was. A result holds as long as the file it mutates is the same,
and a survivor's as long as its tests are, too.
"""
