"""What goes wrong in the lab on purpose: cables, switches, strangers."""
