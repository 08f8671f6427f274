"""What is played in the lab: each scenario, what it saw, and how that is told."""
