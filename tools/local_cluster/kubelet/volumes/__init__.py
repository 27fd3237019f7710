"""A pod's volumes as folders of this machine."""
