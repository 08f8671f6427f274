"""Every schedule of a small world, instead of some of a large one.

The world is the simulation itself (``world.py``), with dice that always show the same. At every hello interval each
fault may begin or end, and each hello that is sent may be lost, or late by an interval. For every such choice the
process forks: the child goes that way, and the parent goes on as if nothing had happened once the child is done. Where
a state was met before, with at least as much left to go wrong, all that follows is known already. So a search ends when
every way leads back to a state that was met: there is no horizon.
"""
