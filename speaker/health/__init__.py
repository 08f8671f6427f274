"""Whether endpoints from files are healthy: each node checks them by itself."""
