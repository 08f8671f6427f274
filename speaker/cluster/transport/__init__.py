"""Requests to the Kubernetes API, and how it lets us in."""
