"""What the speaker reports about itself: metrics, health, logs."""
