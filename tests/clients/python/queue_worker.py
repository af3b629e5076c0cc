"""Works a queue over HTTP while a Kafka client writes to its topic and reads it as a log: `queue_worker.py TOPIC`.

The client sends 24 records to one partition: `urgent` and three others that say how they want to be delivered, then twenty
that say nothing. `HTTP` is where the broker serves its queues.
"""

import json
import os
import sys
import time
import urllib.request

QUEUE = f"http://{os.environ['HTTP']}/queues"
FIRST = {"usual", "urgent", "later", "stale"}
REST = {f"{i}" for i in range(20)}


def ask(path, body, method=None):
    request = urllib.request.Request(f"{QUEUE}{path}", data=None if body is None else json.dumps(body).encode(), method=method)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def receive(topic, **options):
    """Receives and deletes; their values."""
    messages = ask(f"/{topic}/receive", {"wait_ms": 10_000, **options})["messages"]
    for message in messages:
        if message["value"] == "later":
            took = time.time() * 1000 - message["sent_ms"]
            assert took >= 1990, f"what was to come after 2 s came after {took} ms"
    if messages:
        ask(f"/{topic}/delete", {"receipts": [message["receipt"] for message in messages]})
    return [message["value"] for message in messages]


def work(topic):
    # Clients that can configure a topic have done so; that of kcat becomes a queue with what is in it.
    ask(f"/{topic}", {"configs": {"queue.enable": True}}, "PATCH")
    values = receive(topic, max=1)
    assert values == ["urgent"], f"{values} came before what has a higher priority"
    # Times to live end within a second after their time.
    time.sleep(1.3)
    while len(values) < len(FIRST | REST) - 1:
        more = receive(topic, max=5)
        assert more, f"nothing more within 10 s behind {values}"
        values += more
    assert sorted(values) == sorted((FIRST | REST) - {"stale"}), values
    stats = ask(f"/{topic}/stats", None)
    assert stats["ready"] + stats["in_flight"] + stats["delayed"] == 0, stats
    return f"{len(values)} messages, one first, one late, one outdated"


def main():
    try:
        print(f"STEP queue-worked ok {work(sys.argv[1])}", flush=True)
    except (AssertionError, OSError) as error:
        print(f"STEP queue-worked fail {' '.join(str(error).split())}", flush=True)
        sys.exit(1)


main()
