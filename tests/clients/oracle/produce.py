"""Questions about Produce: which broken batches are refused, with which code, and how idempotence answers."""

import time

from probe import RUN, attempt, create, produce, sections, show
from wire import batch, record

T = f"p-{RUN}"
NOW = int(time.time() * 1000)
HOUR = 3_600_000


def basics():
    create(T, 2)
    show("acks=2 v9", produce(T, batch(n=1, ts=NOW), acks=2, full=True))
    show("acks=2 v3", produce(T, batch(n=1, ts=NOW), acks=2, version=3, full=True))
    show("good v9", produce(T, batch(n=3, ts=NOW), full=True))
    show("good v3", produce(T, batch(n=1, ts=NOW), version=3, full=True))
    show("good, leader epoch 7 and base offset 99 in batch", produce(T, batch(n=1, ts=NOW, base=99, leader_epoch=7)))
    show("acks=0 good", produce(T, batch(n=1, ts=NOW), acks=0))
    show("acks=0 unknown topic", produce("nope-" + RUN, batch(n=1, ts=NOW), acks=0))
    show("acks=0 unknown partition", produce(T, batch(n=1, ts=NOW), acks=0, partition=9))
    show("acks=0 corrupt", produce(T, batch(n=1, ts=NOW, crc=1), acks=0))
    show("unknown topic", produce("nope-" + RUN, batch(n=1, ts=NOW), full=True))
    show("unknown partition", produce(T, batch(n=1, ts=NOW), partition=9))
    show("negative partition", produce(T, batch(n=1, ts=NOW), partition=-1))
    show("bad topic name", produce("a b", batch(n=1, ts=NOW)))
    show("unknown id v13", produce(None, batch(n=1, ts=NOW), version=13, topic_id="11111111-1111-1111-1111-111111111111", full=True))
    show("zero id v13", produce(None, batch(n=1, ts=NOW), version=13, full=True))
    show("v2", attempt("Produce", 2, raw=b"\xff\xff\0\0\0\0\0\0\0\0"))
    show("v0", attempt("Produce", 0, raw=b"\xff\xff\0\0\0\0\0\0\0\0"))
    show("null records", produce(T, None))
    show("empty records", produce(T, b""))
    show("empty topic list", attempt("Produce", 9, {"Acks": -1, "TimeoutMs": 1000, "TransactionalId": None, "TopicData": []}))
    show("internal topic __consumer_offsets", produce("__consumer_offsets", batch([(b"\0\1\0\1g", None)], ts=NOW)))
    show("same partition twice in request", attempt("Produce", 9, {"Acks": -1, "TimeoutMs": 1000, "TransactionalId": None, "TopicData": [
        {"Name": T, "PartitionData": [{"Index": 0, "Records": batch(n=1, ts=NOW)}, {"Index": 0, "Records": batch(n=2, ts=NOW)}]}]}))
    show("same topic twice in request", attempt("Produce", 9, {"Acks": -1, "TimeoutMs": 1000, "TransactionalId": None, "TopicData": [
        {"Name": T, "PartitionData": [{"Index": 0, "Records": batch(n=1, ts=NOW)}]}, {"Name": T, "PartitionData": [{"Index": 1, "Records": batch(n=2, ts=NOW)}]}]}))


def broken():
    create(T, 2)
    good = batch(n=3, ts=NOW)
    size = len(good) - 12
    show("wrong crc v9", produce(T, batch(n=3, ts=NOW, crc=1)))
    show("wrong crc v3", produce(T, batch(n=3, ts=NOW, crc=1), version=3))
    show("batchLength +1", produce(T, batch(n=3, ts=NOW, length=size + 1)))
    show("batchLength -1", produce(T, batch(n=3, ts=NOW, length=size - 1)))
    show("batchLength 48 (below header)", produce(T, batch(n=3, ts=NOW, length=48)))
    show("batchLength 0", produce(T, batch(n=3, ts=NOW, length=0)))
    show("batchLength -1 absolute", produce(T, batch(n=3, ts=NOW, length=-1)))
    show("batchLength 2^31-1", produce(T, batch(n=3, ts=NOW, length=2**31 - 1)))
    show("only 10 bytes", produce(T, good[:10]))
    show("cut by 1", produce(T, good[:-1]))
    show("trailing byte after batch", produce(T, good + b"\0"))
    show("trailing 20 bytes after batch", produce(T, good + b"\0" * 20))
    show("count 0, no body, lastOffsetDelta -1", produce(T, batch([], ts=NOW)))
    show("count 0, no body, lastOffsetDelta 0", produce(T, batch([], ts=NOW, last_delta=0)))
    show("count 0 with 3 records", produce(T, batch(n=3, ts=NOW, count=0)))
    show("count -1", produce(T, batch(n=3, ts=NOW, count=-1)))
    show("count 2 of 3, lastOffsetDelta 1", produce(T, batch(n=3, ts=NOW, count=2, last_delta=1)))
    show("count 2 of 3, lastOffsetDelta 2", produce(T, batch(n=3, ts=NOW, count=2, last_delta=2)))
    show("count 4 of 3, lastOffsetDelta 3", produce(T, batch(n=3, ts=NOW, count=4, last_delta=3)))
    show("two batches", produce(T, good + good))
    show("lastOffsetDelta too high", produce(T, batch(n=3, ts=NOW, last_delta=5)))
    show("lastOffsetDelta too low", produce(T, batch(n=3, ts=NOW, last_delta=1)))
    show("offset delta gap 0,1,3 last 2", produce(T, batch([record(0, b"a", b"a"), record(1, b"a", b"a"), record(3, b"a", b"a")], ts=NOW, last_delta=2)))
    show("offset delta gap 0,1,3 last 3", produce(T, batch([record(0, b"a", b"a"), record(1, b"a", b"a"), record(3, b"a", b"a")], ts=NOW, last_delta=3)))
    show("offset deltas 1,0", produce(T, batch([record(1, b"a", b"a"), record(0, b"a", b"a")], ts=NOW)))
    show("control bit", produce(T, batch([(b"\0\0\0\0", b"\0\0\0\0\0\0")], ts=NOW, attributes=0x20)))
    show("control+transactional", produce(T, batch([(b"\0\0\0\0", b"\0\0\0\0\0\0")], ts=NOW, attributes=0x30, pid=1, epoch=0, seq=-1)))
    show("transactional bit, no producer id", produce(T, batch(n=1, ts=NOW, attributes=0x10)))
    show("transactional bit with producer id, null txn id", produce(T, batch(n=1, ts=NOW, attributes=0x10, pid=4000, epoch=0, seq=0)))
    show("transactional bit with producer id, txn id 'x' v9", produce(T, batch(n=1, ts=NOW, attributes=0x10, pid=4000, epoch=0, seq=0), txn="x"))
    show("transactional bit with producer id, txn id 'x' v12", produce(T, batch(n=1, ts=NOW, attributes=0x10, pid=4000, epoch=0, seq=0), txn="x", version=12))
    show("no transactional bit, txn id 'x'", produce(T, batch(n=1, ts=NOW), txn="x"))
    show("no transactional bit, txn id ''", produce(T, batch(n=1, ts=NOW), txn=""))
    show("delete horizon bit", produce(T, batch(n=1, ts=NOW, attributes=0x40)))
    show("unused attribute bit 7", produce(T, batch(n=1, ts=NOW, attributes=0x80)))
    show("codec 5", produce(T, batch(n=1, ts=NOW, attributes=5)))
    show("codec 7", produce(T, batch(n=1, ts=NOW, attributes=7)))
    show("gzip with garbage body", produce(T, batch(n=1, ts=NOW, attributes=1)))
    show("zstd v6", produce(T, batch(n=1, ts=NOW, attributes=4), version=6))
    show("zstd v7 garbage", produce(T, batch(n=1, ts=NOW, attributes=4), version=7))
    for codec, name in ((2, "snappy"), (3, "lz4"), (4, "zstd")):
        show(f"{name} garbage", produce(T, batch(n=1, ts=NOW, attributes=codec)))
    show("LogAppendTime bit from producer", produce(T, batch(n=1, ts=NOW, attributes=8)))
    show("magic 1 in v2 layout", produce(T, batch(n=1, ts=NOW, magic=1)))
    show("magic 0 in v2 layout", produce(T, batch(n=1, ts=NOW, magic=0)))
    show("magic 3", produce(T, batch(n=1, ts=NOW, magic=3)))
    import struct, zlib
    v1body = struct.pack(">bbq", 1, 0, NOW) + struct.pack(">i", 1) + b"k" + struct.pack(">i", 1) + b"v"
    v1 = struct.pack(">qiI", 0, len(v1body) + 4, zlib.crc32(v1body)) + v1body
    show("real v1 message, Produce v3", produce(T, v1, version=3))
    show("real v1 message, Produce v9", produce(T, v1))
    show("record attribute 1", produce(T, batch([b"\x10\x01\0\0\x02k\x02v\0"], ts=NOW)))
    show("record length too long", produce(T, batch([b"\x40\0\0\0\x02k\x02v\0"], ts=NOW)))
    show("record length too short", produce(T, batch([b"\x0e\0\0\0\x02k\x02v\0"], ts=NOW)))
    show("record negative header count", produce(T, batch([b"\x10\0\0\0\x02k\x02v\x01"], ts=NOW)))
    show("record null header key", produce(T, batch([b"\x14\0\0\0\x02k\x02v\x02\x01\x00"], ts=NOW)))
    show("record key length -2", produce(T, batch([b"\x0e\0\0\0\x03\x02v\0"], ts=NOW)))
    show("trailing bytes in body", produce(T, batch(ts=NOW, count=1, last_delta=0, body=record(0, b"k", b"v") + b"\0\0")))
    show("null key and null value", produce(T, batch([(None, None)], ts=NOW)))


def compressed():
    import gzip

    create(T, 2)
    squeeze = lambda *records: gzip.compress(b"".join(records))
    a = lambda delta, **kw: record(delta, b"a", b"a", **kw)
    show("gzip, fine", produce(T, batch(ts=NOW, attributes=1, count=2, last_delta=1, body=squeeze(a(0), a(1)))))
    show("gzip, deltas 0,1,3 last 2", produce(T, batch(ts=NOW, attributes=1, count=3, last_delta=2, body=squeeze(a(0), a(1), a(3)))))
    show("gzip, deltas 1,0", produce(T, batch(ts=NOW, attributes=1, count=2, last_delta=1, body=squeeze(a(1), a(0)))))
    show("gzip, one record too many", produce(T, batch(ts=NOW, attributes=1, count=1, last_delta=0, body=squeeze(a(0), a(1)))))
    show("gzip, one record too few", produce(T, batch(ts=NOW, attributes=1, count=3, last_delta=2, body=squeeze(a(0), a(1)))))
    show("gzip, bytes after the last record", produce(T, batch(ts=NOW, attributes=1, count=1, last_delta=0, body=squeeze(a(0), b"xx"))))
    show("gzip, bytes after the stream", produce(T, batch(ts=NOW, attributes=1, count=1, last_delta=0, body=squeeze(a(0)) + b"xx")))
    show("gzip, record attribute 1", produce(T, batch(ts=NOW, attributes=1, count=1, last_delta=0, body=squeeze(b"\x10\x01\0\0\x02k\x02v\0"))))
    show("gzip, cut short", produce(T, batch(ts=NOW, attributes=1, count=1, last_delta=0, body=squeeze(a(0))[:-12])))
    show("gzip, maxTimestamp too high", produce(T, batch(ts=NOW, max_ts=NOW + 50, attributes=1, count=1, last_delta=0, body=squeeze(a(0)))))
    show("gzip, empty body, count 0", produce(T, batch(ts=NOW, attributes=1, count=0, last_delta=-1, body=gzip.compress(b""))))
    limited = f"pl-{RUN}"
    create(limited, 1, max_decompressed_message_bytes=1000)
    show("max.decompressed.message.bytes=1000, 2000 bytes in gzip", produce(limited, batch(ts=NOW, attributes=1, count=1, last_delta=0, body=squeeze(record(0, b"k", b"v" * 2000)))))
    show("max.decompressed.message.bytes=1000, 2000 bytes not compressed", produce(limited, batch([(b"k", b"v" * 2000)], ts=NOW)))
    for policy in ("gzip", "uncompressed"):
        topic = f"pr-{policy}-{RUN}"
        create(topic, 1, compression_type=policy)
        show(f"compression.type={policy}: plain batch", produce(topic, batch(n=3, ts=NOW)))
        show(f"compression.type={policy}: gzip batch", produce(topic, batch(ts=NOW, attributes=1, count=2, last_delta=1, body=squeeze(a(0), a(1)))))
        records = attempt("Fetch", 4, {"ReplicaId": -1, "MaxWaitMs": 0, "MinBytes": 1, "MaxBytes": 1 << 20, "Topics": [{"Topic": topic, "Partitions": [
            {"Partition": 0, "FetchOffset": 0, "PartitionMaxBytes": 1 << 20}]}]})["Responses"][0]["Partitions"][0]["Records"]
        at, codecs = 0, []
        while at < len(records):
            codecs.append(records[at + 22] & 7)
            at += 12 + int.from_bytes(records[at + 8 : at + 12], "big")
        show(f"compression.type={policy}: codecs stored", codecs)


def compacted():
    topic = f"pc-{RUN}"
    create(topic, 1, cleanup_policy="compact")
    show("null key v9", produce(topic, batch([(b"a", b"1"), (None, b"2"), (None, b"3")], ts=NOW), full=True))
    show("null key v7", produce(topic, batch([(b"a", b"1"), (None, b"2")], ts=NOW), version=7))
    show("all keyed", produce(topic, batch([(b"a", b"1")], ts=NOW)))
    both = f"pcd-{RUN}"
    create(both, 1, cleanup_policy="compact,delete")
    show("null key, compact,delete", produce(both, batch([(None, b"2")], ts=NOW)))


def sizes():
    topic = f"ps-{RUN}"
    create(topic, 1, max_message_bytes=1000)
    for total in (999, 1000, 1001):
        value = total - 61 - 6 - 4
        while len(batch([(b"k", b"v" * value)], ts=NOW)) < total:
            value += 1
        data = batch([(b"k", b"v" * value)], ts=NOW)
        show(f"max.message.bytes=1000, batch of {len(data)} bytes in all", produce(topic, data))
    show("too large v3", produce(topic, batch([(b"k", b"v" * 2000)], ts=NOW), version=3))
    small = f"pseg-{RUN}"
    create(small, 1, segment_bytes=1048576, max_message_bytes=3000000)
    show("larger than segment.bytes (1 MiB), below max.message.bytes", produce(small, batch([(b"k", b"v" * 1100000)], ts=NOW)))
    zero = f"pz-{RUN}"
    create(zero, 1, max_message_bytes=0)
    show("max.message.bytes=0", produce(zero, batch(n=1, ts=NOW)))


def timestamps():
    create(T, 2)
    show("30 min in the future", produce(T, batch(n=1, ts=NOW + HOUR // 2)))
    show("2 h in the future", produce(T, batch(n=1, ts=NOW + 2 * HOUR), full=True))
    show("2 h in the future, two of three", produce(T, batch([record(0, b"a", b"a"), record(1, b"a", b"a", 2 * HOUR), record(2, b"a", b"a", 3 * HOUR)], ts=NOW, max_ts=NOW + 3 * HOUR), full=True))
    show("1 year in the past", produce(T, batch(n=1, ts=NOW - 365 * 24 * HOUR)))
    show("timestamp 0", produce(T, batch(n=1, ts=0)))
    show("timestamp -1", produce(T, batch(n=1, ts=-1)))
    show("timestamp -2", produce(T, batch(n=1, ts=-2)))
    show("base -1 with delta 1 (record timestamp 0)", produce(T, batch([record(0, b"a", b"a", 1)], ts=-1, max_ts=0)))
    show("maxTimestamp too low", produce(T, batch([record(0, b"a", b"a"), record(1, b"a", b"a", 50)], ts=NOW, max_ts=NOW)))
    show("maxTimestamp too high", produce(T, batch(n=1, ts=NOW, max_ts=NOW + 50)))
    show("maxTimestamp 2 h ahead, records now", produce(T, batch(n=1, ts=NOW, max_ts=NOW + 2 * HOUR)))
    show("record timestamps falling", produce(T, batch([record(0, b"a", b"a", 5), record(1, b"a", b"a", 1)], ts=NOW, max_ts=NOW + 5)))
    append = f"pla-{RUN}"
    create(append, 1, message_timestamp_type="LogAppendTime")
    show("LogAppendTime topic", produce(append, batch(n=2, ts=NOW - HOUR), full=True))
    show("LogAppendTime topic, 2 h in the future", produce(append, batch(n=2, ts=NOW + 2 * HOUR)))
    before = f"pbf-{RUN}"
    create(before, 1, message_timestamp_before_max_ms=1000)
    show("before.max.ms=1000, 1 h old", produce(before, batch(n=1, ts=NOW - HOUR)))
    show("before.max.ms=1000, timestamp -1", produce(before, batch(n=1, ts=-1)))


def new_pid():
    """The first block of ids takes the broker a moment; until then it answers COORDINATOR_LOAD_IN_PROGRESS."""
    while True:
        answer = attempt("InitProducerId", 4, {"TransactionalId": None, "TransactionTimeoutMs": 1000, "ProducerId": -1, "ProducerEpoch": -1})
        if answer["ErrorCode"] != 14:
            return answer
        time.sleep(0.1)


def idempotence():
    topic = f"pi-{RUN}"
    create(topic, 3)
    first = new_pid()
    show("InitProducerId null txn id v4", first)
    pid = first["ProducerId"]

    def send(what, seq, n=1, epoch=0, who=pid, partition=0, **kw):
        show(what, produce(topic, batch(n=n, ts=NOW, pid=who, epoch=epoch, seq=seq), partition=partition, **kw))

    send("seq -1 with producer id", -1)
    send("epoch -1 with producer id", 0, epoch=-1)
    send("epoch -1, seq -1", -1, epoch=-1)
    send("first seq 0 n=2", 0, 2)
    send("repeat of it", 0, 2)
    send("same first seq, other count", 0, 1)
    send("seq 1 n=1 (inside the last batch)", 1, 1)
    send("next seq 2", 2)
    send("gap seq 5", 5)
    send("next 3", 3)
    send("next 4", 4)
    send("next 5", 5)
    send("next 6", 6)
    send("repeat of seq 2 (5 back)", 2)
    send("repeat of seq 0 n=2 (6 back, fell out)", 0, 2)
    send("epoch 1, seq 3", 3, epoch=1)
    send("epoch 1, seq 0", 0, epoch=1)
    send("epoch 0 again, seq 7", 7, epoch=0)
    send("epoch 5 (skipping), seq 0", 0, epoch=5)
    send("unknown producer id 777777, seq 0", 0, who=777777, partition=1)
    send("unknown producer id 777778, seq 10", 10, who=777778, partition=1)
    send("then seq 11", 11, who=777778, partition=1)
    send("then seq 13", 13, who=777778, partition=1)
    send("unknown pid epoch 3, seq 4", 4, epoch=3, who=777779, partition=1)
    send("acks=1, seq 0", 0, who=777780, partition=1, acks=1)
    send("acks=0, seq 1", 1, who=777780, partition=1, acks=0)
    send("wrap: seq 2^31-2, n=1 (unknown pid)", 2**31 - 2, who=777781, partition=1)
    send("wrap: seq 2^31-1, n=2", 2**31 - 1, 2, who=777781, partition=1)
    send("wrap: seq 1", 1, who=777781, partition=1)
    send("wrap: repeat of seq 2^31-1 n=2", 2**31 - 1, 2, who=777781, partition=1)
    show("two batches of one producer in one partition", produce(topic, batch(n=1, ts=NOW, pid=777782, epoch=0, seq=0) + batch(n=1, ts=NOW, pid=777782, epoch=0, seq=1), partition=2))
    append = f"pila-{RUN}"
    create(append, 1, message_timestamp_type="LogAppendTime")
    show("LogAppendTime first", produce(append, batch(n=1, ts=NOW, pid=pid, epoch=0, seq=0)))
    time.sleep(0.1)
    show("LogAppendTime duplicate", produce(append, batch(n=1, ts=NOW, pid=pid, epoch=0, seq=0)))
    show("DescribeProducers", attempt("DescribeProducers", 0, {"Topics": [{"Name": topic, "PartitionIndexes": [0, 1, 2, 9]}, {"Name": "nope", "PartitionIndexes": [0]}]}))


sections(basics, broken, compressed, compacted, sizes, timestamps, idempotence)
