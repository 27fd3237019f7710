"""What stands in for a cluster and its engines beside the operator that is measured."""
