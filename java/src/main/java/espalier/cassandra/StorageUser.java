package espalier.cassandra;

/** A factory that opens what the engine of mode {@code storage} keeps of its tables. */
interface StorageUser
{
}
