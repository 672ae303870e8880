"""Nodes whose data directory is a disk in memory."""

import shutil
from contextlib import contextmanager

from proof import places
from proof.oracle.espalier import Espalier
from proof.volume import Disk, Mount
from proof.wire import Connection


@contextmanager
def node_on(disk: Disk, short_writes: bool = False, **settings: str):
    """A node whose data directory is on the disk, and the mount."""
    directory = places.run_directory("espalier")
    with Mount(disk, directory / "data", short_writes) as mount:
        node = Espalier(directory, places.free_ports(1)[0], {f"ESPALIER_{key.upper()}": value for key, value in settings.items()}, False)
        try:
            node.launch()
            yield node, mount
        except Exception:
            print(node.log_tail(), flush=True)
            raise
        finally:
            mount.release()
            if node.process is not None and node.process.poll() is None:
                node.kill()
    shutil.rmtree(directory, ignore_errors=True)


def query(node, cql: str):
    with Connection(node.host, node.port) as connection:
        return connection.query(cql)
