"""The benchmarks: of the tuner, of engines, of a GPU, of the hook. They import all the rest."""
