"""A disk in memory, mounted as a file system for an unmodified program: it can fail, fill up, stall and lose power."""

from proof.volume.disk import O_DSYNC, Disk
from proof.volume.mount import Fault, Mount, in_own_namespace

__all__ = ["Disk", "Fault", "Mount", "O_DSYNC", "in_own_namespace"]
