"""Why an EIP is not reachable: the facts of one node, what is wrong among them, and the words for it.

::

    edges ──► Facts ──► chain (one EIP, step by step; or everything, ranked) ──► report, as text or JSON

``facts.py`` has the one value that everything is judged from. It is JSON, so that another machine may judge it.
``gather.py`` makes it with the edges ``asking.py`` (who answers, who sends hellos, which endpoints accept a connection)
and ``kernel.py`` (this host, and the speaker's process). It asks the running speaker for what that knows
(``node/known/knowledge.py``).
"""
