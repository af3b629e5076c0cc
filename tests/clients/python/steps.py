"""What every client test in Python shares: the steps' printed form, the data, and how read data is checked.

A program prints `VERSION x`, then one line per step, `STEP name ok|fail detail`, and exits 1 if one failed.
A line `TOPIC name codec,codec,…` tells the caller where to look whether the codecs asked for are really stored
(`stored.py`): librdkafka before 2.12 sends uncompressed batches, silently, to a broker that it takes for an old one.
A step that fails does not end the program: the others still tell something.
"""

import contextlib
import os
import sys
import time
import traceback
import uuid

BOOTSTRAP = os.environ["BOOTSTRAP"]
RUN = uuid.uuid4().hex[:8]
PARTITIONS = 3
PER_CODEC = 30
# One second apart, an hour ago, so that a seek by time has something to find.
FIRST_MS = int(time.time() * 1000) - 3_600_000

failed = []


def version(text):
    print(f"VERSION {text}", flush=True)


class Step:
    """Collects the detail that is printed behind ok."""

    def __init__(self):
        self.detail = ""


@contextlib.contextmanager
def step(name):
    one, begin = Step(), time.time()
    try:
        yield one
        print(f"STEP {name} ok {one.detail} ({time.time() - begin:.1f} s)", flush=True)
    except Exception as error:  # noqa: BLE001: whatever a client throws is a failed step
        failed.append(name)
        where = traceback.extract_tb(error.__traceback__)[-1]
        text = " ".join(f"{type(error).__name__}: {error}".split())
        print(f"STEP {name} fail {text} ({os.path.basename(where.filename)}:{where.lineno})", flush=True)


def finish():
    sys.stdout.flush()
    sys.stderr.flush()
    # Some clients keep threads that would hold the process; everything worth closing is closed.
    os._exit(1 if failed else 0)


def records(codec):
    """(partition, key, value, headers, timestamp) of one codec's records; one in ten has a null value."""
    return [
        (i % PARTITIONS, f"{codec}-{i}".encode(), None if i % 10 == 9 else (f"{codec} {i} ".encode() * 20),
         [("codec", codec.encode()), ("n", str(i).encode()), ("n", b"again")], FIRST_MS + i * 1000)
        for i in range(PER_CODEC)
    ]


def check_read(codecs, read):
    """`read`: partition → list of (offset, key, value, headers, timestamp) in the order received."""
    expected = {p: [] for p in range(PARTITIONS)}
    for codec in codecs:
        for partition, *rest in records(codec):
            expected[partition].append(tuple(rest))
    for partition, wanted in expected.items():
        got = read.get(partition, [])
        offsets = [record[0] for record in got]
        assert offsets == sorted(offsets), f"partition {partition} out of order: {offsets}"
        assert len(got) == len(wanted), f"partition {partition}: {len(got)} records, not {len(wanted)}"
        for (offset, key, value, headers, timestamp), want in zip(got, wanted):
            assert key == want[0] and value == want[1], f"partition {partition} offset {offset}: {key!r}, not {want[0]!r}"
            assert headers is None or [(k, bytes(v)) for k, v in headers] == want[2], f"headers of {key!r}: {headers}"
            assert timestamp == want[3], f"timestamp of {key!r}: {timestamp}, not {want[3]}"
    return f"{sum(map(len, expected.values()))} records of {len(codecs)} codecs"


def until(what, condition, timeout=20, pause=0.05):
    """Waits for a condition that is polled; the error names what was missing."""
    deadline = time.time() + timeout
    while True:
        value = condition()
        if value:
            return value
        assert time.time() < deadline, f"no {what} within {timeout} s"
        time.sleep(pause)


QUEUE_TOPIC, QUEUE_GROUP = f"queue-{RUN}", f"queue-{RUN}"
# Makes a topic a queue as well.
QUEUE_CONFIG = {"queue.enable": "true"}
QUEUE_VALUES = [b"usual", b"urgent", b"later", b"stale", *(b"%d" % i for i in range(20))]
QUEUE_WISHES = {
    b"urgent": [("towpath-priority", b"9")], b"later": [("towpath-deliver-after", b"2s")], b"stale": [("towpath-ttl", b"100ms")]}


def queue_batches():
    """Records for QUEUE_TOPIC, batch by batch, as in `records`; its messages are worked (`queue_worker.py`) as soon as the
    first batch, with those that say how they want to be delivered, is sent."""
    for first in range(0, len(QUEUE_VALUES), 4):
        if first == 4:
            print(f"QUEUE {QUEUE_TOPIC}", flush=True)
        yield [(0, None, value, QUEUE_WISHES.get(value, []), int(time.time() * 1000)) for value in QUEUE_VALUES[first:first + 4]]


def check_queue(read):
    """`read`: (value, headers) of what a group read from the beginning, in the order received."""
    got = [(bytes(value), [(name, bytes(content)) for name, content in headers or []]) for value, headers in read]
    assert got == [(value, QUEUE_WISHES.get(value, [])) for value in QUEUE_VALUES], got
    return f"{len(got)} records read as a log while they are worked"
