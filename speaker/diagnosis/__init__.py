"""Why an EIP is not reachable: facts of one node, what is wrong among them, and the words for it.

::

    edges ──► Facts ──► chain (one EIP, step by step; or everything, ranked) ──► report, as text or JSON

``facts.py`` has the one value that everything is judged from: JSON, so that another machine may judge it.
``gather.py`` makes it by the edges ``asking.py`` (who answers, who says hello, which endpoints accept a connection) and
``kernel.py`` (this host, and the speaker's process). What the running speaker knows is asked of it
(``node/known/knowledge.py``).
"""
