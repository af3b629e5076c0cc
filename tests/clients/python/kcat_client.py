"""kcat against BOOTSTRAP. It needs no package, only the program, which the system has or has not.

kcat has no admin side: its topics come into being by writing to them, with as many partitions as the broker gives, so the
group reads two topics. It cannot set timestamps either; the seek by time looks for the moment between two publishings.
"""

import re
import subprocess
import tempfile
import time

from steps import BOOTSTRAP, QUEUE_GROUP, QUEUE_TOPIC, RUN, check_queue, finish, queue_batches, step, until, version

TOPIC, GROUP = f"kcat-{RUN}", f"kcat-{RUN}"
GROUP_TOPICS = [f"kcat-g-{RUN}-1", f"kcat-g-{RUN}-2"]
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def kcat(*args, text=None, timeout=20):
    done = subprocess.run(["kcat", "-b", BOOTSTRAP, *args], input=text, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, f"kcat {' '.join(args)}: {done.stderr.strip()[-300:]}"
    return done.stdout


def produce(topic, lines, *args):
    kcat("-P", "-t", topic, "-K:", "-H", "n=1", "-H", "n=again", *args, text="".join(f"{line}\n" for line in lines))


class Member:
    """A `kcat -G` process whose output lands in files."""

    def __init__(self):
        self.out, self.err = tempfile.NamedTemporaryFile("r"), tempfile.NamedTemporaryFile("r")
        with open(self.out.name, "w") as out, open(self.err.name, "w") as err:
            self.process = subprocess.Popen(
                ["kcat", "-b", BOOTSTRAP, "-u", "-G", GROUP, "-X", "auto.offset.reset=earliest", "-X", "session.timeout.ms=10000",
                 "-X", "heartbeat.interval.ms=500", "-X", "partition.assignment.strategy=roundrobin", *GROUP_TOPICS], stdout=out, stderr=err)

    def values(self):
        with open(self.out.name) as out:
            return out.read().split()

    def assigned(self):
        """What the last `assigned:` line named, and nothing after a `revoked:` line."""
        with open(self.err.name) as err:
            lines = [line for line in err.read().splitlines() if "assigned:" in line or "revoked:" in line]
        return set(re.findall(r"\S+ \[\d+\]", lines[-1].split("assigned:")[1])) if lines and "assigned:" in lines[-1] else set()

    def leave(self):
        self.process.terminate()
        self.process.wait(15)


def main():
    version(re.search(r"Version (\S+) .*librdkafka (\S+)", subprocess.run(["kcat", "-V"], capture_output=True, text=True).stdout).expand(r"\1 (librdkafka \2)"))
    with step("create") as s:
        for topic in [TOPIC, *GROUP_TOPICS]:
            produce(topic, ["first:0"] if topic == TOPIC else [])
            until("topic", lambda: f'topic "{topic}" with' in kcat("-L", "-t", topic) and "Leader not available" not in kcat("-L", "-t", topic))
        s.detail = "by writing to it"
    for codec in CODECS:
        with step(f"publish-{codec}") as s:
            produce(TOPIC, [f"{codec}-{i}:{codec} {i} {'x' * 100}" for i in range(30)], "-z", codec, "-p", "0")
            s.detail = "30 records"
    print(f"TOPIC {TOPIC} {','.join(CODECS)}", flush=True)
    with step("read") as s:
        lines = kcat("-C", "-t", TOPIC, "-p", "0", "-o", "beginning", "-e", "-q", "-f", "%o|%k|%h|%T|%s\n").splitlines()
        rows = [line.split("|") for line in lines if not line.split("|")[1] == "first"]
        assert [row[1] for row in rows] == [f"{codec}-{i}" for codec in CODECS for i in range(30)], rows[:3]
        assert all(row[2] == "n=1,n=again" for row in rows), rows[0]
        assert all(row[4].startswith(row[1].replace("-", " ")) for row in rows), rows[0]
        assert [int(row[0]) for row in rows] == sorted(int(row[0]) for row in rows)
        assert all(abs(int(row[3]) / 1000 - time.time()) < 300 for row in rows), rows[0]
        s.detail = f"{len(rows)} records of {len(CODECS)} codecs"
    with step("seek-by-time") as s:
        time.sleep(0.1)
        moment = int(time.time() * 1000)
        time.sleep(0.1)
        produce(TOPIC, ["late:1"], "-p", "0")
        assert kcat("-C", "-t", TOPIC, "-p", "0", "-o", f"s@{moment}", "-e", "-q", "-f", "%k\n").split() == ["late"]
        queried = kcat("-Q", "-t", f"{TOPIC}:0:{moment}")
        s.detail = queried.strip()
    with step("idempotent") as s:
        produce(TOPIC, [f"again-{i}:{i}" for i in range(30)], "-X", "enable.idempotence=true")
        s.detail = "30 records"
    with step("queue") as s:
        kcat("-P", "-t", QUEUE_TOPIC)
        until("topic", lambda: f'topic "{QUEUE_TOPIC}" with' in kcat("-L", "-t", QUEUE_TOPIC))
        for batch in queue_batches():
            # It gives all records of a run the same headers.
            for _, _, value, headers, _ in batch:
                named = [word for name, content in headers for word in ("-H", f"{name}={content.decode()}")]
                kcat("-P", "-t", QUEUE_TOPIC, "-p", "0", *named, text=value.decode())
        lines = kcat("-q", "-X", "auto.offset.reset=earliest", "-c", "24", "-f", "%s|%h\n", "-G", QUEUE_GROUP, QUEUE_TOPIC).splitlines()
        pairs = [(value.encode(), headers.partition("=")) for value, _, headers in (line.partition("|") for line in lines)]
        s.detail = check_queue((value, [(name, content.encode())] if name else []) for value, (name, _, content) in pairs)
    both = {f"{topic} [0]" for topic in GROUP_TOPICS}

    def numbers(first, last):
        for n, topic in enumerate(GROUP_TOPICS):
            produce(topic, [f"k{i}:{i}" for i in range(first, last) if i % 2 == n])

    with step("group-of-two") as s:
        a, b = Member(), Member()
        until("share for both", lambda: both <= a.assigned() | b.assigned() and a.assigned() and b.assigned() and not a.assigned() & b.assigned())
        numbers(0, 40)
        until("forty records", lambda: len(a.values()) + len(b.values()) >= 40)
        assert sorted(map(int, a.values() + b.values())) == list(range(40)) and a.values() and b.values()
        s.detail = f"{len(a.values())}+{len(b.values())} records"
    with step("one-leaves") as s:
        b.leave()
        until("take-over", lambda: both <= a.assigned())
        numbers(40, 60)
        until("twenty more", lambda: len(a.values()) + len(b.values()) >= 60)
        s.detail = "the other has all partitions"
    with step("commit") as s:
        a.leave()
        s.detail = "on leaving; shown by resume"
    with step("resume") as s:
        numbers(60, 70)
        c = Member()
        until("ten more", lambda: len(c.values()) >= 10)
        time.sleep(0.5)
        assert sorted(map(int, c.values())) == list(range(60, 70)), c.values()
        c.leave()
        s.detail = "only the new ones"
    finish()


main()
