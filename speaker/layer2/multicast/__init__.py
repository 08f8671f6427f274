"""Solicited-node multicast groups: joined, and reported to switches that snoop."""
