from support.local_cluster import http, local_cluster, namespace

__all__ = ["http", "local_cluster", "namespace"]
