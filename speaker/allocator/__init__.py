"""Which Service gets which EIP. Pure: start reading at ``assign.py``; ``settle.py`` is what a loop calls."""
