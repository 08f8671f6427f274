"""``speaker plan``: what would change, from files or a live cluster."""
