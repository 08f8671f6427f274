"""A process that owns a cluster of one node and says so, for a test that kills it."""

import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from real_cluster import RealCluster

with RealCluster(Path(sys.argv[1]), nodes=1) as cluster:
    sys.stdout.write(f"{cluster.name} {cluster.directory} {cluster.world.sweeper}\n")
    sys.stdout.flush()
    signal.pause()
