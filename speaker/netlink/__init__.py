"""What several rooms share of netlink: messages, attributes, numbers, and a socket that asks in batches."""
