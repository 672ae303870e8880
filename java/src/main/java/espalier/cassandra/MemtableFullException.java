package espalier.cassandra;

/** A native memtable has no room for an update, which was not applied. */
final class MemtableFullException extends IllegalStateException
{
    private static final long serialVersionUID = 1;

    MemtableFullException(String message)
    {
        super(message);
    }
}
