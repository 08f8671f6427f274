"""What this node knows, for whoever asks why an EIP is not reachable."""
