"""The LAN of the lab: who is on it, and the network namespaces that it is made of."""
