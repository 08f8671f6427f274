"""One host at work: which tasks run, what they share, what people are told. Start reading at ``serve.py``."""
