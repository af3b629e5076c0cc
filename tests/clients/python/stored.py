"""Reads a topic's batches raw and says whether each codec that a client claims to have used is there.

Usage: stored.py TOPIC codec,codec,… with BOOTSTRAP set to the only node. Prints one STEP line.
"""

import os
import socket
import struct
import sys

# The tests use three partitions; kcat takes what it gets.
PARTITIONS = 3
UNKNOWN_PARTITION = 3
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def fetch(connection, topic, partition):
    """Fetch v4 from offset 0: the oldest version there is, so any broker that serves clients serves this."""
    name = topic.encode()
    body = struct.pack(">iiiibi", -1, 500, 1, 1 << 24, 0, 1) + struct.pack(">h", len(name)) + name
    body += struct.pack(">iiqi", 1, partition, 0, 1 << 24)
    frame = struct.pack(">hhih", 1, 4, partition, -1) + body
    connection.sendall(struct.pack(">i", len(frame)) + frame)
    answer = read(connection, struct.unpack(">i", read(connection, 4))[0])
    at = 4 + 4 + 4 + 2 + len(name) + 4
    _, error, _, _, aborted = struct.unpack_from(">ihqqi", answer, at)
    if error == UNKNOWN_PARTITION and partition > 0:
        return b""
    assert error == 0, f"partition {partition}: error {error}"
    at += 26 + 16 * max(aborted, 0)
    return answer[at + 4 : at + 4 + max(struct.unpack_from(">i", answer, at)[0], 0)]


def read(connection, size):
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        assert part, "connection closed"
        data += part
    return data


def codecs(data):
    """The codec of each whole batch: the low bits of its attributes."""
    at = 0
    while at + 61 <= len(data):
        length, = struct.unpack_from(">i", data, at + 8)
        yield CODECS[struct.unpack_from(">h", data, at + 21)[0] & 7]
        at += 12 + length


def main():
    topic, wanted = sys.argv[1], set(sys.argv[2].split(","))
    host, port = os.environ["BOOTSTRAP"].rsplit(":", 1)
    try:
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            found = {codec for p in range(PARTITIONS) for codec in codecs(fetch(connection, topic, p))}
        assert wanted <= found, f"stored {sorted(found)}, sent {sorted(wanted)}"
        print(f"STEP stored-codecs ok {', '.join(c for c in CODECS if c in found)}")
    except (AssertionError, OSError) as error:
        print(f"STEP stored-codecs fail {error}")
        sys.exit(1)


main()
