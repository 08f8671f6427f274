"""The parts of netlink that several rooms share: messages, attributes, numbers, and a socket that sends in batches."""
