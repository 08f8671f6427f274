"""One resource of the Kubernetes API, mirrored: listed once, then watched."""
