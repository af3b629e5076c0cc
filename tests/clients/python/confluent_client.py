"""confluent-kafka (librdkafka) against BOOTSTRAP."""

import time

import confluent_kafka
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from steps import (
    BOOTSTRAP, FIRST_MS, PARTITIONS, QUEUE_CONFIG, QUEUE_GROUP, QUEUE_TOPIC, RUN, check_queue, check_read, finish, queue_batches, records,
    step, until, version)

TOPIC, GROUP_TOPIC, GROUP = f"cpy-{RUN}", f"cpy-g-{RUN}", f"cpy-{RUN}"
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


class Member:
    """A group member; `poll` drives it, so two of them run in one thread."""

    def __init__(self):
        self.values, self.assigned = [], set()
        self.consumer = Consumer({
            "bootstrap.servers": BOOTSTRAP, "group.id": GROUP, "auto.offset.reset": "earliest", "enable.auto.commit": False,
            "session.timeout.ms": 10000, "heartbeat.interval.ms": 500})
        self.consumer.subscribe([GROUP_TOPIC])

    def poll(self):
        while True:
            message = self.consumer.poll(0.1)
            self.assigned = {tp.partition for tp in self.consumer.assignment()}
            if message is None:
                return
            assert message.error() is None, message.error()
            self.values.append(int(message.value()))
            self.consumer.commit(message, asynchronous=False)

    def leave(self):
        self.consumer.close()


def send(topic, batch, **options):
    errors = []
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "linger.ms": 20, **options})
    for p, k, v, h, t in batch:
        producer.produce(topic, partition=p, key=k, value=v, headers=h, timestamp=t, on_delivery=lambda e, m: errors.append(e) if e else None)
    left = producer.flush(20)
    assert left == 0 and not errors, f"{left} not delivered, {errors[:1]}"
    return len(batch)


def numbered(first, last):
    return [(i % 4, None, b"%d" % i, [], FIRST_MS) for i in range(first, last)]


def group_steps():
    members = []

    def poll_all():
        for member in members:
            member.poll()

    with step("group-of-two") as s:
        a, b = Member(), Member()
        members[:] = [a, b]

        def shared():
            poll_all()
            return a.assigned and b.assigned and a.assigned | b.assigned == set(range(4)) and not a.assigned & b.assigned

        until("share for both", shared)
        send(GROUP_TOPIC, numbered(0, 40))
        until("forty records", lambda: poll_all() or len(a.values) + len(b.values) >= 40)
        assert sorted(a.values + b.values) == list(range(40)) and a.values and b.values, (a.values, b.values)
        s.detail = f"{len(a.values)}+{len(b.values)} records"
    with step("one-leaves") as s:
        members[:] = [a]
        b.leave()
        until("take-over", lambda: poll_all() or a.assigned == set(range(4)))
        send(GROUP_TOPIC, numbered(40, 60))
        until("twenty more", lambda: poll_all() or len(a.values) + len(b.values) >= 60)
        s.detail = "the other has all partitions"
    with step("commit") as s:
        a.leave()
        admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
        offsets = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(GROUP)])[GROUP].result(20).topic_partitions
        assert sum(tp.offset for tp in offsets) == 60, offsets
        s.detail = "60 committed"
    with step("resume") as s:
        send(GROUP_TOPIC, numbered(60, 70))
        c = Member()
        until("ten more", lambda: c.poll() or len(c.values) >= 10)
        c.poll()
        assert sorted(c.values) == list(range(60, 70)), c.values
        c.leave()
        s.detail = "only the new ones"


def main():
    version(f"{confluent_kafka.__version__} (librdkafka {confluent_kafka.libversion()[0]})")
    admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
    with step("create") as s:
        made = admin.create_topics([NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=1), NewTopic(GROUP_TOPIC, num_partitions=4, replication_factor=1)])
        for future in made.values():
            future.result(20)
        until("topics", lambda: {TOPIC, GROUP_TOPIC} <= set(admin.list_topics(timeout=10).topics))
        s.detail = "two topics"
    for codec in CODECS:
        with step(f"publish-{codec}") as s:
            s.detail = f"{send(TOPIC, records(codec), **{'compression.type': codec})} records"
    consumer = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": f"{GROUP}-read", "enable.partition.eof": True, "enable.auto.commit": False})
    print(f"TOPIC {TOPIC} {','.join(CODECS)}", flush=True)
    with step("read") as s:
        consumer.assign([TopicPartition(TOPIC, p, 0) for p in range(PARTITIONS)])
        read, ended = {p: [] for p in range(PARTITIONS)}, set()

        def all_read():
            message = consumer.poll(1)
            if message is None:
                return False
            if message.error():
                assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF, message.error()
                ended.add(message.partition())
            else:
                read[message.partition()].append((message.offset(), message.key(), message.value(), message.headers(), message.timestamp()[1]))
            return len(ended) == PARTITIONS

        until("end of the topic", all_read, pause=0)
        s.detail = check_read(CODECS, read)
    with step("seek-by-time") as s:
        found = consumer.offsets_for_times([TopicPartition(TOPIC, 1, FIRST_MS + 10_000), TopicPartition(TOPIC, 0, int(time.time() * 1000) + 60_000)], timeout=20)
        assert found[1].offset == confluent_kafka.OFFSET_END, found
        consumer.assign([found[0]])
        first = until("record", lambda: consumer.poll(1))
        assert first.error() is None and first.key() == b"none-10", first.key()
        s.detail = f"offset {first.offset()}"
        consumer.close()
    with step("idempotent") as s:
        s.detail = f"{send(TOPIC, records('none'), **{'enable.idempotence': True})} records"
    with step("queue") as s:
        admin.create_topics([NewTopic(QUEUE_TOPIC, num_partitions=1, replication_factor=1, config=QUEUE_CONFIG)])[QUEUE_TOPIC].result(20)
        for batch in queue_batches():
            send(QUEUE_TOPIC, batch)
        reader = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": QUEUE_GROUP, "auto.offset.reset": "earliest"})
        reader.subscribe([QUEUE_TOPIC])
        read = [until("record", lambda: reader.poll(1)) for _ in range(24)]
        reader.close()
        s.detail = check_queue((message.value(), message.headers()) for message in read)
    group_steps()
    finish()


main()
