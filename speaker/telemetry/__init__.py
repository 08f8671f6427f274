"""What the speaker shows of itself: metrics, health, logs."""
