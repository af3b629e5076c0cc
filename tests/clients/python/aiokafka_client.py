"""aiokafka against BOOTSTRAP."""

import asyncio
import time

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from steps import (
    BOOTSTRAP, FIRST_MS, PARTITIONS, QUEUE_CONFIG, QUEUE_GROUP, QUEUE_TOPIC, RUN, check_queue, check_read, finish, queue_batches, records,
    step, version)

TOPIC, GROUP_TOPIC, GROUP = f"aio-{RUN}", f"aio-g-{RUN}", f"aio-{RUN}"
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


class Member:
    """A group member with a task that reads and commits."""

    @classmethod
    async def begin(cls):
        self = cls()
        self.values = []
        self.consumer = AIOKafkaConsumer(
            GROUP_TOPIC, bootstrap_servers=BOOTSTRAP, group_id=GROUP, auto_offset_reset="earliest", enable_auto_commit=False,
            session_timeout_ms=10000, heartbeat_interval_ms=500, rebalance_timeout_ms=10000)
        await self.consumer.start()
        self.task = asyncio.create_task(self.read())
        return self

    async def read(self):
        while True:
            for batch in (await self.consumer.getmany(timeout_ms=200)).values():
                self.values += [int(record.value) for record in batch]
                await self.consumer.commit()

    @property
    def assigned(self):
        return {tp.partition for tp in self.consumer.assignment()}

    async def leave(self):
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self.consumer.stop()


async def until(what, condition, timeout=20):
    deadline = time.time() + timeout
    while not condition():
        assert time.time() < deadline, f"no {what} within {timeout} s"
        await asyncio.sleep(0.05)


async def send(topic, batch, **options):
    producer = AIOKafkaProducer(bootstrap_servers=BOOTSTRAP, linger_ms=20, **options)
    await producer.start()
    try:
        futures = [await producer.send(topic, partition=p, key=k, value=v, headers=h, timestamp_ms=t) for p, k, v, h, t in batch]
        await asyncio.wait_for(asyncio.gather(*futures), 20)
    finally:
        await producer.stop()
    return len(batch)


def numbered(first, last):
    return [(i % 4, None, b"%d" % i, [], FIRST_MS) for i in range(first, last)]


async def main():
    version(aiokafka.__version__)
    with step("create") as s:
        admin = AIOKafkaAdminClient(bootstrap_servers=BOOTSTRAP)
        await admin.start()
        await admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1), NewTopic(GROUP_TOPIC, 4, 1)])
        for _ in range(100):
            if {TOPIC, GROUP_TOPIC} <= set(await admin.list_topics()):
                break
            await asyncio.sleep(0.1)
        await admin.close()
        s.detail = "two topics"
    for codec in CODECS:
        with step(f"publish-{codec}") as s:
            s.detail = f"{await send(TOPIC, records(codec), compression_type=None if codec == 'none' else codec)} records"
    parts = [TopicPartition(TOPIC, p) for p in range(PARTITIONS)]
    consumer = AIOKafkaConsumer(bootstrap_servers=BOOTSTRAP, auto_offset_reset="earliest")
    print(f"TOPIC {TOPIC} {','.join(CODECS)}", flush=True)
    with step("read") as s:
        await consumer.start()
        consumer.assign(parts)
        ends, read, deadline = await consumer.end_offsets(parts), {p: [] for p in range(PARTITIONS)}, time.time() + 20
        while [tp for tp in parts if await consumer.position(tp) < ends[tp]]:
            assert time.time() < deadline, "end of the topic not reached within 20 s"
            for tp, batch in (await consumer.getmany(timeout_ms=500)).items():
                read[tp.partition] += [(r.offset, r.key, r.value, r.headers, r.timestamp) for r in batch]
        s.detail = check_read(CODECS, read)
    with step("seek-by-time") as s:
        found = await consumer.offsets_for_times({tp: FIRST_MS + 10_000 for tp in parts})
        consumer.seek(parts[1], found[parts[1]].offset)
        first = await asyncio.wait_for(consumer.getone(parts[1]), 20)
        assert first.key == b"none-10", first
        late = await consumer.offsets_for_times({parts[0]: int(time.time() * 1000) + 60_000})
        assert late[parts[0]] is None, late
        s.detail = f"offset {first.offset}"
        await consumer.stop()
    with step("idempotent") as s:
        s.detail = f"{await send(TOPIC, records('none'), enable_idempotence=True)} records"
    with step("queue") as s:
        admin = AIOKafkaAdminClient(bootstrap_servers=BOOTSTRAP)
        await admin.start()
        await admin.create_topics([NewTopic(QUEUE_TOPIC, 1, 1, topic_configs=QUEUE_CONFIG)])
        await admin.close()
        for batch in queue_batches():
            await send(QUEUE_TOPIC, batch)
        reader = AIOKafkaConsumer(QUEUE_TOPIC, bootstrap_servers=BOOTSTRAP, group_id=QUEUE_GROUP, auto_offset_reset="earliest")
        await reader.start()
        read = [await asyncio.wait_for(reader.getone(), 20) for _ in range(24)]
        await reader.stop()
        s.detail = check_queue((record.value, record.headers) for record in read)
    with step("group-of-two") as s:
        a, b = await asyncio.gather(Member.begin(), Member.begin())
        await until("share for both", lambda: a.assigned and b.assigned and a.assigned | b.assigned == set(range(4)) and not a.assigned & b.assigned)
        await send(GROUP_TOPIC, numbered(0, 40))
        await until("forty records", lambda: len(a.values) + len(b.values) >= 40)
        assert sorted(a.values + b.values) == list(range(40)) and a.values and b.values, (a.values, b.values)
        s.detail = f"{len(a.values)}+{len(b.values)} records"
    with step("one-leaves") as s:
        await b.leave()
        await until("take-over", lambda: a.assigned == set(range(4)))
        await send(GROUP_TOPIC, numbered(40, 60))
        await until("twenty more", lambda: len(a.values) + len(b.values) >= 60)
        s.detail = "the other has all partitions"
    with step("commit") as s:
        await a.leave()
        admin = AIOKafkaAdminClient(bootstrap_servers=BOOTSTRAP)
        await admin.start()
        offsets = await admin.list_consumer_group_offsets(GROUP)
        assert sum(o.offset for o in offsets.values()) == 60, offsets
        await admin.close()
        s.detail = "60 committed"
    with step("resume") as s:
        await send(GROUP_TOPIC, numbered(60, 70))
        c = await Member.begin()
        await until("ten more", lambda: len(c.values) >= 10)
        await asyncio.sleep(0.5)
        assert sorted(c.values) == list(range(60, 70)), c.values
        await c.leave()
        s.detail = "only the new ones"


asyncio.run(main())
finish()
