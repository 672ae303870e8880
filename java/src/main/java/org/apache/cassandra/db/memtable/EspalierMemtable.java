package org.apache.cassandra.db.memtable;

import java.util.Map;

import espalier.cassandra.EspalierFactory;

/**
 * The name of the plugin in cassandra.yaml. Cassandra looks for a class name without a package in this package.
 * Everything else is in {@link espalier.cassandra}.
 */
public final class EspalierMemtable
{
    private EspalierMemtable()
    {
    }

    /** The factory of the memtables that these parameters describe; the parameters that it reads are removed. */
    public static Memtable.Factory factory(Map<String, String> options)
    {
        return EspalierFactory.of(options);
    }
}
