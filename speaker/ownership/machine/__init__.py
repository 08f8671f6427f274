"""The state machine that says who answers for which EIP. Pure: start reading at ``machine.py``."""
