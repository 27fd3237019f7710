"""etcd, the API server, the controllers and the scheduler: how they are built and started."""
