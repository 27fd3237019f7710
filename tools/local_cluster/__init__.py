"""A Kubernetes cluster on one machine: a real control plane, and pods as local processes."""
