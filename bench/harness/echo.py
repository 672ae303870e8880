"""The cost of an answer on the server's runtime without any work: an echo of as many bytes as the
load's requests and answers have."""

import subprocess

from bench.harness import load

# Of an EXECUTE with a 16-byte key (and a 100-byte value), and of its answer, protocol v4: (request, answer).
WRITE_BYTES = (164, 13)
READ_BYTES = (60, 133)


def cpu_micros(reads_percent: int, connections: int, in_flight: int, seconds: int) -> float:
    """The echoing server's processor time per request, microseconds."""
    share = reads_percent / 100
    sizes = [str(round(write * (1 - share) + read * share)) for write, read in zip(WRITE_BYTES, READ_BYTES)]
    echo = str(load.TARGET / "release" / "echo")
    server = subprocess.Popen([echo, "serve", *sizes], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        port = server.stdout.readline().strip()
        before = load.process_seconds(server.pid)
        done = subprocess.run([echo, "drive", port, str(connections), str(in_flight), *sizes, str(seconds)],
                              capture_output=True, text=True, check=True, timeout=load.TIMEOUT_SECONDS)
        return (load.process_seconds(server.pid) - before) * 1e6 / max(int(done.stdout), 1)
    finally:
        server.stdin.close()
        server.wait(timeout=10)
