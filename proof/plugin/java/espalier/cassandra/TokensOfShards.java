package espalier.cassandra;

import java.nio.ByteBuffer;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.TreeSet;
import java.util.stream.Collectors;

import org.apache.cassandra.db.memtable.ShardBoundaries;
import org.apache.cassandra.dht.Murmur3Partitioner.LongToken;
import org.apache.cassandra.dht.Token;

/**
 * Native memtables get the boundaries between shards that Cassandra has, also the least and the largest token, and each
 * only once.
 */
final class TokensOfShards
{
    private static final int ROUNDS = 200;

    private TokensOfShards()
    {
    }

    static void check()
    {
        compare(Collections.emptyList());
        compare(List.of(Long.MIN_VALUE, -1L, 0L, Long.MAX_VALUE));
        compare(List.of(Long.MIN_VALUE, Long.MIN_VALUE, 7L, 7L, 7L, Long.MAX_VALUE, Long.MAX_VALUE));
        Random random = new Random(1);
        for (int round = 0; round < ROUNDS; round++)
            compare(random.longs(random.nextInt(20)).sorted().boxed().collect(Collectors.toList()));
    }

    private static void compare(List<Long> tokens)
    {
        List<Token> boundaries = tokens.stream().<Token>map(LongToken::new).collect(Collectors.toList());
        ByteBuffer firsts = MemtableHandle.firstTokens(new ShardBoundaries(boundaries, 1));
        firsts.flip();
        TreeSet<Long> found = new TreeSet<>();
        while (firsts.hasRemaining())
            if (!found.add(firsts.getLong()))
                throw new AssertionError("a token twice, of " + tokens);
        if (!found.equals(new TreeSet<>(tokens)))
            throw new AssertionError(found + " in place of " + tokens);
    }
}
