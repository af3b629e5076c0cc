"""kafka-python against BOOTSTRAP."""

import threading
import time

import kafka
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic

from steps import (
    BOOTSTRAP, FIRST_MS, PARTITIONS, QUEUE_CONFIG, QUEUE_GROUP, QUEUE_TOPIC, RUN, check_queue, check_read, finish, queue_batches, records,
    step, until, version)

TOPIC, GROUP_TOPIC, GROUP = f"kpy-{RUN}", f"kpy-g-{RUN}", f"kpy-{RUN}"
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


class Member(threading.Thread):
    """A group member in a thread of its own, as the consumer may be used by one thread only."""

    def __init__(self, name):
        super().__init__(daemon=True)
        self.stop, self.values, self.assigned, self.error = threading.Event(), [], set(), None
        self.consumer = KafkaConsumer(
            bootstrap_servers=BOOTSTRAP, group_id=GROUP, client_id=name, auto_offset_reset="earliest", enable_auto_commit=False,
            session_timeout_ms=10000, heartbeat_interval_ms=500, max_poll_interval_ms=20000)
        self.consumer.subscribe([GROUP_TOPIC])
        self.start()

    def run(self):
        try:
            while not self.stop.is_set():
                # Longer than a rebalance takes: a join that is answered between two polls is never taken up
                # by 3.0.12, and the member stands still with its heartbeats off (docs/clients.md).
                for batch in self.consumer.poll(timeout_ms=2000).values():
                    self.values += [record.value for record in batch]
                    self.consumer.commit()
                self.assigned = {tp.partition for tp in self.consumer.assignment()}
            self.consumer.close()
        except Exception as error:  # noqa: BLE001: reported by whoever waits for this member
            self.error = error

    def leave(self):
        self.stop.set()
        self.join(15)
        assert self.error is None, f"member failed: {self.error!r}"


def send(topic, batch, **options):
    producer = KafkaProducer(bootstrap_servers=BOOTSTRAP, linger_ms=20, **options)
    futures = [producer.send(topic, partition=p, key=k, value=v, headers=h, timestamp_ms=t) for p, k, v, h, t in batch]
    producer.flush(timeout=20)
    sent = [future.get(timeout=20) for future in futures]
    producer.close()
    return sent


def numbered(first, last):
    return [(i % 4, None, b"%d" % i, [], FIRST_MS) for i in range(first, last)]


def main():
    version(kafka.__version__)
    with step("create") as s:
        admin = KafkaAdminClient(bootstrap_servers=BOOTSTRAP)
        admin.create_topics([NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=1), NewTopic(GROUP_TOPIC, num_partitions=4, replication_factor=1)])
        until("topics", lambda: {TOPIC, GROUP_TOPIC} <= set(admin.list_topics()))
        s.detail = "two topics"
        admin.close()
    for codec in CODECS:
        with step(f"publish-{codec}") as s:
            s.detail = f"{len(send(TOPIC, records(codec), compression_type=None if codec == 'none' else codec, enable_idempotence=False))} records"
    print(f"TOPIC {TOPIC} {','.join(CODECS)}", flush=True)
    with step("read") as s:
        consumer = KafkaConsumer(bootstrap_servers=BOOTSTRAP, auto_offset_reset="earliest", group_id=None)
        parts = [TopicPartition(TOPIC, p) for p in range(PARTITIONS)]
        consumer.assign(parts)
        ends, read = consumer.end_offsets(parts), {p: [] for p in range(PARTITIONS)}

        def all_read():
            for tp, batch in consumer.poll(timeout_ms=500).items():
                read[tp.partition] += [(r.offset, r.key, r.value, r.headers, r.timestamp) for r in batch]
            return all(consumer.position(tp) >= ends[tp] for tp in parts)

        until("end of the topic", all_read)
        s.detail = check_read(CODECS, read)
    with step("seek-by-time") as s:
        found = consumer.offsets_for_times({tp: FIRST_MS + 10_000 for tp in parts})
        consumer.seek(parts[1], found[parts[1]].offset)
        first = until("record", lambda: [r for batch in consumer.poll(timeout_ms=500).values() for r in batch if r.partition == 1])[0]
        assert first.key == b"none-10", first
        late = consumer.offsets_for_times({parts[0]: int(time.time() * 1000) + 60_000})
        assert late[parts[0]] is None, late
        s.detail = f"offset {first.offset}"
        consumer.close()
    with step("idempotent") as s:
        sent = send(TOPIC, records("none"), enable_idempotence=True)
        s.detail = f"{len(sent)} records"
    with step("queue") as s:
        admin = KafkaAdminClient(bootstrap_servers=BOOTSTRAP)
        admin.create_topics([NewTopic(QUEUE_TOPIC, num_partitions=1, replication_factor=1, topic_configs=QUEUE_CONFIG)])
        admin.close()
        for batch in queue_batches():
            send(QUEUE_TOPIC, batch)
        reader, read = KafkaConsumer(QUEUE_TOPIC, bootstrap_servers=BOOTSTRAP, group_id=QUEUE_GROUP, auto_offset_reset="earliest"), []
        until("24 records", lambda: read.extend(r for batch in reader.poll(500).values() for r in batch) or len(read) >= 24)
        reader.close()
        s.detail = check_queue((record.value, record.headers) for record in read)
    with step("group-of-two") as s:
        a, b = Member("a"), Member("b")
        until("share for both", lambda: a.assigned and b.assigned and a.assigned | b.assigned == set(range(4)) and not a.assigned & b.assigned)
        send(GROUP_TOPIC, numbered(0, 40))
        until("forty records", lambda: len(a.values) + len(b.values) >= 40)
        assert sorted(map(int, a.values + b.values)) == list(range(40)) and a.values and b.values
        s.detail = f"{len(a.values)}+{len(b.values)} records"
    with step("one-leaves") as s:
        b.leave()
        until("take-over", lambda: a.assigned == set(range(4)))
        send(GROUP_TOPIC, numbered(40, 60))
        until("twenty more", lambda: len(a.values) + len(b.values) >= 60)
        s.detail = "the other has all partitions"
    with step("commit") as s:
        a.leave()
        admin = KafkaAdminClient(bootstrap_servers=BOOTSTRAP)
        offsets = admin.list_group_offsets([GROUP])[GROUP]
        assert sum(o.offset for o in offsets.values()) == 60, offsets
        admin.close()
        s.detail = "60 committed"
    with step("resume") as s:
        send(GROUP_TOPIC, numbered(60, 70))
        c = Member("c")
        until("ten more", lambda: len(c.values) >= 10)
        time.sleep(0.5)
        assert sorted(map(int, c.values)) == list(range(60, 70)), c.values
        c.leave()
        s.detail = "only the new ones"
    finish()


main()
