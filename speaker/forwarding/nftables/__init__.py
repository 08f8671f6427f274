"""Forwarding with nftables: the ruleset, the program ``nft``, and what it lists."""
