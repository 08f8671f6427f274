"""A package for pytest, so that the cluster that its tests share ends with the last of them."""
