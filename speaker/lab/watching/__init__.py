"""What is seen on the lab's LAN: captures, listeners, and clients that count what they miss."""
