"""A kubelet whose pods are processes of this machine, in namespaces of their own."""
