"""A small client for the CQL native protocol, versions 3 to 5, that shows what drivers hide.

Drivers retry, reconnect, rewrite and interpret; the proofs here compare two servers byte by byte, so they speak the
protocol themselves: `connection` moves frames, `requests` encodes, `responses` decodes.
"""

from proof.wire.connection import Connection, ConnectionClosed
from proof.wire.requests import UNSET, QueryOptions
from proof.wire.responses import Error, Prepared, Rows, SchemaChange, SetKeyspace, Void

__all__ = ["Connection", "ConnectionClosed", "Error", "Prepared", "QueryOptions", "Rows", "SchemaChange",
           "SetKeyspace", "UNSET", "Void"]
