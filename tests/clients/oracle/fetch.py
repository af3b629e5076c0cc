"""Questions about Fetch, ListOffsets and OffsetForLeaderEpoch."""

import os
import time

import wire
from probe import RUN, attempt, connect, create, produce, sections, show
from wire import batch, record

T = f"f-{RUN}"
NOW = int(time.time() * 1000) - 100_000
UNKNOWN_ID = "11111111-1111-1111-1111-111111111111"


def body(topic, offset, *, partition=0, topic_id=None, session=0, epoch=-1, max_bytes=1 << 20, partition_max=1 << 20,
         wait=0, min_bytes=1, leader_epoch=-1, version=11, isolation=0, partitions=None, topics=None, forgotten=(), rack=""):
    if partitions is None:
        partitions = [{"Partition": partition, "FetchOffset": offset, "PartitionMaxBytes": partition_max,
                       "CurrentLeaderEpoch": leader_epoch, "LastFetchedEpoch": -1, "LogStartOffset": -1}]
    if topics is None:
        topics = [{("TopicId" if version >= 13 else "Topic"): topic_id if version >= 13 else topic, "Partitions": partitions}]
    for t in topics:
        for p in t["Partitions"]:
            for field, first in (("CurrentLeaderEpoch", 9), ("LastFetchedEpoch", 12)):
                if version < first:
                    p.pop(field, None)
    fields = {"MaxWaitMs": wait, "MinBytes": min_bytes, "MaxBytes": max_bytes, "IsolationLevel": isolation, "Topics": topics}
    if version >= 7:
        fields.update({"SessionId": session, "SessionEpoch": epoch, "ForgottenTopicsData": list(forgotten)})
    if version >= 11:
        fields["RackId"] = rack
    return fields


def fetch(topic, offset, *, version=11, full=False, on=None, **kw):
    request = body(topic, offset, version=version, **kw)
    answer = on.ask("Fetch", version, request) if on else attempt("Fetch", version, request)
    if full or isinstance(answer, str) or not answer["Responses"]:
        return answer
    return answer["Responses"][0]["Partitions"][0]


def answers():
    topic_id = create(T, 2)
    for i in range(3):
        produce(T, batch(n=5, ts=NOW + i * 1000))
    show("offset 0 v4", fetch(T, 0, version=4, full=True))
    show("offset 0 v11", fetch(T, 0, full=True))
    show("offset 0 v12", fetch(T, 0, version=12, full=True))
    show("offset 0 v18 by id", fetch(T, 0, version=18, topic_id=topic_id, full=True))
    show("read_committed v11", fetch(T, 0, isolation=1))
    show("offset 7 (inside second batch)", fetch(T, 7))
    show("offset 15 (log end)", fetch(T, 15))
    show("offset 16 (beyond)", fetch(T, 16))
    show("offset -1", fetch(T, -1))
    show("offset beyond, v12", fetch(T, 16, version=12))
    show("unknown topic v11", fetch("nope", 0, full=True))
    show("unknown topic v12", fetch("nope", 0, version=12, full=True))
    show("unknown partition", fetch(T, 0, partition=9))
    show("unknown id v13", fetch(None, 0, version=13, topic_id=UNKNOWN_ID, full=True))
    show("unknown id v18", fetch(None, 0, version=18, topic_id=UNKNOWN_ID, full=True))
    show("zero id v13", fetch(None, 0, version=13, topic_id=wire.ZERO, full=True))
    show("known id, unknown partition v13", fetch(None, 0, version=13, topic_id=topic_id, partition=9, full=True))
    size = len(batch(n=5, ts=NOW))
    show(f"(one batch has {size} bytes)", None)
    show("max_bytes 0", fetch(T, 0, max_bytes=0))
    show("max_bytes 1", fetch(T, 0, max_bytes=1))
    show("partition_max_bytes 0", fetch(T, 0, partition_max=0))
    show("partition_max_bytes 1", fetch(T, 0, partition_max=1))
    show("partition_max_bytes one and a half batch", fetch(T, 0, partition_max=size * 3 // 2))
    show("partition_max_bytes one and a half batch from 7", fetch(T, 7, partition_max=size * 3 // 2))
    show("max_bytes -1", fetch(T, 0, max_bytes=-1))
    show("partition_max_bytes -1", fetch(T, 0, partition_max=-1))
    produce(T, batch(n=5, ts=NOW), partition=1)
    two = lambda: [{"Partition": p, "FetchOffset": 0, "PartitionMaxBytes": 1 << 20, "CurrentLeaderEpoch": -1, "LogStartOffset": -1} for p in (0, 1)]
    show("two partitions, max_bytes 1", fetch(T, 0, partitions=two(), max_bytes=1, full=True))
    show("two partitions, max_bytes two batches", fetch(T, 0, partitions=two(), max_bytes=2 * size, full=True))
    same = [{"Partition": 0, "FetchOffset": o, "PartitionMaxBytes": 1 << 20, "CurrentLeaderEpoch": -1, "LogStartOffset": -1} for o in (0, 10)]
    show("same partition twice", fetch(T, 0, partitions=same, full=True))
    show("leader epoch 0 (current)", fetch(T, 0, leader_epoch=0))
    show("leader epoch 5 (newer)", fetch(T, 0, leader_epoch=5))
    show("leader epoch 5, v12", fetch(T, 0, leader_epoch=5, version=12))
    show("no topics, sessionless", fetch(T, 0, topics=[], full=True))
    show("delete records to 5", attempt("DeleteRecords", 2, {"Topics": [{"Name": T, "Partitions": [{"PartitionIndex": 0, "Offset": 5}]}], "TimeoutMs": 5000}))
    show("offset 0 below log start 5", fetch(T, 0))
    show("offset 5", fetch(T, 5))
    show("internal topic by name", fetch("__cluster_metadata", 0))


def zstd():
    topic = f"fz-{RUN}"
    create(topic)
    import zstandard
    raw = record(0, b"k", b"v")
    show("produce zstd", produce(topic, batch(ts=NOW, attributes=4, count=1, last_delta=0, body=zstandard.compress(raw))))
    show("Fetch v9", fetch(topic, 0, version=9))
    show("Fetch v10", fetch(topic, 0, version=10))


def waiting():
    topic = f"fw-{RUN}"
    create(topic, 2)
    for what, kw in {
        "empty, min_bytes 1, wait 700": dict(wait=700),
        "empty, min_bytes 0, wait 700": dict(wait=700, min_bytes=0),
        "empty, min_bytes -1, wait 700": dict(wait=700, min_bytes=-1),
        "beyond the end, wait 700": dict(wait=700, offset=5),
        "unknown partition, wait 700": dict(wait=700, partition=9),
        "wait -1": dict(wait=-1),
        "no topics, wait 700": dict(wait=700, topics=[]),
        "max_bytes 0, min_bytes 1, wait 700": dict(wait=700, max_bytes=0),
    }.items():
        begin = time.time()
        offset = kw.pop("offset", 0)
        answer = fetch(topic, offset, full=True, **kw)
        show(f"{what}: took {round((time.time() - begin) * 1000, -2):.0f} ms", answer)
    produce(topic, batch(n=1, ts=NOW))
    begin = time.time()
    fetch(topic, 0, wait=700, min_bytes=100000)
    show(f"data below min_bytes: took {round((time.time() - begin) * 1000, -2):.0f} ms", None)
    begin = time.time()
    fetch(topic, 0, wait=700, min_bytes=100000, max_bytes=10)
    show(f"min_bytes 100000, max_bytes 10: took {round((time.time() - begin) * 1000, -2):.0f} ms", None)


def sessions():
    topic = f"fs-{RUN}"
    topic_id = create(topic, 3)
    produce(topic, batch(n=1, ts=NOW))

    def part(p, offset=0, leader_epoch=-1):
        return {"Partition": p, "FetchOffset": offset, "PartitionMaxBytes": 1 << 20, "CurrentLeaderEpoch": leader_epoch, "LogStartOffset": -1}

    c = connect()
    three = lambda: [part(0), part(1), part(2)]
    first = fetch(topic, 0, on=c, epoch=0, partitions=three(), full=True)
    show("create (0,0)", first)
    s = first["SessionId"]
    show("incremental epoch 1, nothing", fetch(topic, 0, on=c, session=s, epoch=1, topics=[], full=True))
    show("incremental epoch 2, move p0 to 1", fetch(topic, 0, on=c, session=s, epoch=2, partitions=[part(0, 1)], full=True))
    show("incremental epoch 3, nothing new", fetch(topic, 0, on=c, session=s, epoch=3, topics=[], full=True))
    produce(topic, batch(n=1, ts=NOW), partition=1)
    show("incremental epoch 4, p1 got data", fetch(topic, 0, on=c, session=s, epoch=4, topics=[], full=True))
    show("incremental epoch 4 again", fetch(topic, 0, on=c, session=s, epoch=4, topics=[], full=True))
    show("incremental epoch 6 (skipping)", fetch(topic, 0, on=c, session=s, epoch=6, topics=[], full=True))
    show("incremental epoch 5 (right)", fetch(topic, 0, on=c, session=s, epoch=5, topics=[], full=True))
    show("epoch 6: forget p1", fetch(topic, 0, on=c, session=s, epoch=6, topics=[], forgotten=[{"Topic": topic, "Partitions": [1]}], full=True))
    show("epoch 7: forget unknown", fetch(topic, 0, on=c, session=s, epoch=7, topics=[], forgotten=[{"Topic": "nope", "Partitions": [1]}], full=True))
    show("epoch 8: add unknown topic", fetch("nope", 0, on=c, session=s, epoch=8, full=True))
    show("epoch 9: nothing (unknown topic still there)", fetch(topic, 0, on=c, session=s, epoch=9, topics=[], full=True))
    show("epoch 10: offset out of range", fetch(topic, 0, on=c, session=s, epoch=10, partitions=[part(2, 99)], full=True))
    show("epoch 11: nothing (error persists?)", fetch(topic, 0, on=c, session=s, epoch=11, topics=[], full=True))
    show("unknown session 12345", fetch(topic, 0, on=c, session=12345, epoch=1, topics=[], full=True))
    show("same session from another connection", fetch(topic, 0, session=s, epoch=12, topics=[], full=True))
    show("session with epoch 0 (full again)", fetch(topic, 0, on=c, session=s, epoch=0, partitions=three(), full=True))
    show("the old session afterwards", fetch(topic, 0, on=c, session=s, epoch=13, topics=[], full=True))
    again = fetch(topic, 0, on=c, epoch=0, partitions=three(), full=True)
    s = again["SessionId"]
    show("close (s,-1)", fetch(topic, 0, on=c, session=s, epoch=-1, topics=[], full=True))
    again = fetch(topic, 0, on=c, epoch=0, partitions=three(), full=True)["SessionId"]
    show("close (s,-1) naming a partition", fetch(topic, 0, on=c, session=again, epoch=-1, partitions=[part(0)], full=True))
    show("after close", fetch(topic, 0, on=c, session=s, epoch=1, topics=[], full=True))
    show("sessionless (0,-1)", fetch(topic, 0, on=c, full=True))
    show("(0,5)", fetch(topic, 0, on=c, epoch=5, full=True))
    show("create with no partitions", fetch(topic, 0, on=c, epoch=0, topics=[], full=True))
    s = fetch(topic, 0, on=c, epoch=0, partitions=[part(1)], full=True)["SessionId"]
    show("all forgotten", fetch(topic, 0, on=c, session=s, epoch=1, topics=[], forgotten=[{"Topic": topic, "Partitions": [1]}], full=True))
    s = fetch(None, 0, on=c, epoch=0, version=13, topic_id=topic_id, full=True)["SessionId"]
    show("v13 session used with v12", fetch(topic, 0, on=c, session=s, epoch=1, topics=[], version=12, full=True))
    s = fetch(topic, 0, on=c, epoch=0, version=12, full=True)["SessionId"]
    show("v12 session used with v13", fetch(topic, 0, on=c, session=s, epoch=1, topics=[], version=13, full=True))
    s = fetch(None, 0, on=c, epoch=0, version=13, topic_id=UNKNOWN_ID, full=True)
    show("v13 create with unknown id", s)
    show("  then incremental", fetch(None, 0, on=c, session=s["SessionId"], epoch=1, version=13, topics=[], full=True))
    begin = time.time()
    quiet = fetch(topic, 0, on=c, epoch=0, partitions=[part(2)], full=True)["SessionId"]
    fetch(topic, 0, on=c, session=quiet, epoch=1, topics=[], wait=700, full=True)
    show(f"empty incremental waits: {round((time.time() - begin) * 1000, -2):.0f} ms", None)


def list_offsets():
    topic = f"fl-{RUN}"
    create(topic, 2)
    produce(topic, batch([record(0, b"a", b"a", 0), record(1, b"a", b"a", 500), record(2, b"a", b"a", 200)], ts=NOW, max_ts=NOW + 500))
    produce(topic, batch(n=2, ts=NOW + 1000))

    def ask(ts, version=11, partition=0, epoch=-1, isolation=0, name=topic, replica=-1):
        p = {"PartitionIndex": partition, "Timestamp": ts}
        if version >= 4:
            p["CurrentLeaderEpoch"] = epoch
        b = {"ReplicaId": replica, "Topics": [{"Name": name, "Partitions": [p]}]}
        if version >= 2:
            b["IsolationLevel"] = isolation
        answer = attempt("ListOffsets", version, b)
        return answer if isinstance(answer, str) else answer["Topics"][0]["Partitions"][0]

    for ts in (-1, -2, -3, -4, -5, -6, -7, -100):
        show(f"timestamp {ts}, v11, 5 records", ask(ts))
        show(f"timestamp {ts}, v11, empty partition", ask(ts, partition=1))
    for ts, versions in ((-1, (1, 2, 4, 6)), (-3, (6, 7)), (-4, (7, 8)), (-5, (8, 9)), (-6, (9, 10, 11))):
        for version in versions:
            show(f"timestamp {ts}, v{version}", ask(ts, version=version))
    for what, ts in {"before all": NOW - 50, "exact first": NOW, "first + 1": NOW + 1, "300 (record 1 has 500, record 2 has 200)": NOW + 300,
                     "501": NOW + 501, "exact second batch": NOW + 1000, "after all": NOW + 1001, "0": 0}.items():
        show(f"by time: {what}", {k: (v - NOW if k == "Timestamp" and v > 0 else v) for k, v in ask(ts).items()})
    show("by time v1", ask(NOW, version=1))
    show("isolation 1, latest", ask(-1, isolation=1))
    show("epoch 0", ask(-1, epoch=0))
    show("epoch 5", ask(-1, epoch=5))
    show("unknown partition", ask(-1, partition=9))
    show("unknown topic", ask(-1, name="nope"))
    show("replica -2 (debug consumer)", ask(-1, replica=-2))
    show("same partition twice", attempt("ListOffsets", 7, {"ReplicaId": -1, "IsolationLevel": 0, "Topics": [{"Name": topic, "Partitions": [
        {"PartitionIndex": 0, "Timestamp": -1}, {"PartitionIndex": 0, "Timestamp": -2}]}]}))
    create(topic + "m")
    show("produce -1 timestamp", produce(topic + "m", batch(n=2, ts=-1)))
    show("max timestamp when all are -1", ask(-3, name=topic + "m"))
    show("by time 0 when all are -1", ask(0, name=topic + "m"))


def epochs():
    topic = f"fe-{RUN}"
    create(topic, 1)
    produce(topic, batch(n=3, ts=NOW))

    def ask(epoch, current=-1, partition=0, name=topic, version=4, replica=-1):
        return attempt("OffsetForLeaderEpoch", version, {**({"ReplicaId": replica} if version >= 3 else {}), "Topics": [{"Topic": name, "Partitions": [
            {"Partition": partition, "LeaderEpoch": epoch, "CurrentLeaderEpoch": current}]}]})

    for epoch in (-1, 0, 1, 5, -2):
        show(f"epoch {epoch}", ask(epoch))
    show("current epoch 3 (newer)", ask(0, current=3))
    show("current epoch 0", ask(0, current=0))
    show("unknown partition", ask(0, partition=7))
    show("unknown topic", ask(0, name="nope"))
    show("v2", ask(0, version=2))
    show("empty", attempt("OffsetForLeaderEpoch", 4, {"ReplicaId": -1, "Topics": []}))


def older_epoch():
    """Needs a broker restarted since TOPIC=… was made: a restart starts a new leader epoch."""
    topic = os.environ.get("TOPIC")
    if not topic:
        create(T + "old")
        show("produce", produce(T + "old", batch(n=3, ts=NOW)))
        show(f"restart the broker, then ask again with TOPIC={T}old", None)
        return
    show("produce", produce(topic, batch(n=2, ts=NOW)))
    show("leader epoch now", attempt("Metadata", 9, {"Topics": [{"Name": topic}]})["Topics"][0]["Partitions"][0]["LeaderEpoch"])
    show("fetch, epoch 0 (older)", fetch(topic, 0, leader_epoch=0))
    show("list offsets, epoch 0 (older)", attempt("ListOffsets", 11, {"ReplicaId": -1, "IsolationLevel": 0, "Topics": [{"Name": topic, "Partitions": [
        {"PartitionIndex": 0, "Timestamp": -1, "CurrentLeaderEpoch": 0}]}]})["Topics"][0]["Partitions"])
    for ts in (-1, -2, -3):
        show(f"list offsets {ts}", attempt("ListOffsets", 11, {"ReplicaId": -1, "IsolationLevel": 0, "Topics": [{"Name": topic, "Partitions": [
            {"PartitionIndex": 0, "Timestamp": ts, "CurrentLeaderEpoch": -1}]}]})["Topics"][0]["Partitions"])
    for epoch, current in ((0, -1), (1, -1), (2, -1), (9, -1), (0, 0), (-1, -1)):
        show(f"end of epoch {epoch}, current {current}", attempt("OffsetForLeaderEpoch", 4, {"ReplicaId": -1, "Topics": [{"Topic": topic, "Partitions": [
            {"Partition": 0, "LeaderEpoch": epoch, "CurrentLeaderEpoch": current}]}]})["Topics"][0]["Partitions"])


sections(answers, zstd, waiting, sessions, list_offsets, epochs, older_epoch)
