package espalier.cassandra;

import java.util.LinkedHashMap;
import java.util.Map;

import org.apache.cassandra.config.DatabaseDescriptor;
import org.apache.cassandra.db.commitlog.CommitLog;

/** Proofs that need no node, one after another in one JVM. Takes no arguments, and prints "N passed, N failed" last. */
public final class ShortProofs
{
    interface ProofOfOne
    {
        void check() throws Exception;
    }

    private ShortProofs()
    {
    }

    public static void main(String[] args)
    {
        DatabaseDescriptor.daemonInitialization();
        CommitLog.instance.start();
        // The one that measures memory comes first.
        Map<String, ProofOfOne> proofs = new LinkedHashMap<>();
        proofs.put("memory of discarded memtables", NativeMemory::check);
        proofs.put("Cassandra's log while a table moves out", LogNeeds::check);
        proofs.put("damage at the boundary", NativeBoundary::check);
        proofs.put("memtables without room", FullMemtables::check);
        proofs.put("refused configurations and tables", Refusals::check);
        proofs.put("the tokens of shards", TokensOfShards::check);
        proofs.put("what indexes are told", IndexCalls::check);
        proofs.put("writes without memory", WritesWithoutMemory::check);
        int failed = 0;
        for (Map.Entry<String, ProofOfOne> proof : proofs.entrySet())
            try
            {
                proof.getValue().check();
            }
            catch (Throwable failure)
            {
                failed++;
                System.out.println("FAILED: " + proof.getKey());
                failure.printStackTrace(System.out);
            }
        System.out.println((proofs.size() - failed) + " passed, " + failed + " failed");
        System.out.flush();
        Runtime.getRuntime().halt(failed);
    }
}
