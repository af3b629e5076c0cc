"""Kafka's own tools and test programs against BOOTSTRAP, one after another in a process of theirs (Host.java).

`steps.py --list` names the steps, `steps.py NAME` runs one: it ends with 0 if all went as expected, else it says what did not.
CLASSPATH holds Kafka's jars and the compiled Host.java. A tool for something that Towpath does not have must be refused with the reason: those steps
are called refuses-….
"""

import base64
import functools
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import uuid

BOOTSTRAP = os.environ.get("BOOTSTRAP", "")
RUN = uuid.uuid4().hex[:8]
# The tools are short; most of their time would go into compiling themselves.
JAVA = ["java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Xmx256m", "-cp", os.environ.get("CLASSPATH", "")]
TOOL_WAIT = 120
STEPS = {}


def step(function):
    STEPS[function.__name__.replace("_", "-")] = function
    return function


@functools.cache
def host():
    return subprocess.Popen([*JAVA, "Host"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def java(name, *args):
    """Runs a class of org.apache.kafka.tools; returns its exit status and what it said."""
    deadline = threading.Timer(TOOL_WAIT, host().kill)
    deadline.start()
    host().stdin.write("\x1f".join([f"org.apache.kafka.tools.{name}", *args]) + "\n")
    host().stdin.flush()
    answer = host().stdout.readline()
    deadline.cancel()
    assert answer, f"{name} {' '.join(args)} was not done within {TOOL_WAIT} s, or ended the whole process"
    status, said = answer.split(" ")
    said = base64.b64decode(said).decode(errors="replace")
    return int(status), "\n".join(line for line in said.splitlines() if not line.startswith(("SLF4J", "\tat ")))


def process(name, *args):
    """As `ok`, in a process of its own, for what does half of its work when its process ends."""
    command = [*JAVA, f"org.apache.kafka.tools.{name}", "--bootstrap-server", BOOTSTRAP, *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_WAIT)
    assert done.returncode == 0, f"{name} {' '.join(args)} ended with {done.returncode}: {(done.stdout + done.stderr)[-600:]}"
    return done.stdout


def ok(name, *args):
    status, said = java(name, "--bootstrap-server", BOOTSTRAP, *args)
    assert status == 0, f"{name} {' '.join(args)} ended with {status}: {said[-600:]}"
    return said


def refused(pattern, name, *args):
    """The tool must say why; some end with 0 all the same."""
    _, said = java(name, "--bootstrap-server", BOOTSTRAP, *args)
    assert re.search(pattern, said), f"{name} {' '.join(args)} does not say {pattern}: {said[-600:]}"


def has(said, *words):
    for word in words:
        assert word in said, f"{word} is not in: {said[-600:]}"


def topic(partitions=2, *args):
    name = f"tools-{RUN}-{uuid.uuid4().hex[:4]}"
    ok("TopicCommand", "--create", "--topic", name, "--partitions", str(partitions), *args)
    return name


def events(said):
    """Lines of JSON, as the verifiable programs print them."""
    return [json.loads(line) for line in said.splitlines() if line.startswith("{")]


def produce(name, count, *args):
    seen = events(process("VerifiableProducer", "--topic", name, "--max-messages", str(count), "--throughput", "-1", *args))
    acked = [e for e in seen if e["name"] == "producer_send_success"]
    assert len(acked) == count, f"{len(acked)} of {count} acknowledged"
    assert not [e for e in seen if e["name"] == "producer_send_error"]
    return acked


def offsets(name, *args):
    """Partition to offset, as GetOffsetShell says."""
    rows = [line.split(":") for line in ok("GetOffsetShell", "--topic", name, *args).split() if line.startswith(name + ":")]
    return {int(row[1]): int(row[2]) for row in rows if row[2]}


def group_rows(group):
    """Topic, partition, committed offset, log end offset, lag."""
    rows = [line.split() for line in ok("consumer.group.ConsumerGroupCommand", "--describe", "--group", group).splitlines()]
    return [(row[1], int(row[2]), row[3], row[4], row[5]) for row in rows if len(row) > 5 and row[0] == group]


def committed(group):
    """Partition to committed offset; a partition without one is shown as -."""
    return {partition: int(offset) for _, partition, offset, _, _ in group_rows(group) if offset != "-"}


def reset(group, *args):
    ok("consumer.group.ConsumerGroupCommand", "--reset-offsets", "--group", group, *args, "--execute")


def file_of(value):
    file = tempfile.NamedTemporaryFile("w", suffix=".json", delete=False)
    with file:
        json.dump(value, file)
    return file.name


# Kafka's own test programs.


@step
def client_compatibility_test():
    # ACLs are the one thing that it may be told a broker lacks and that Towpath lacks.
    said = ok("ClientCompatibilityTest", "--topic", topic(1), "--offsets-for-times-supported", "True", "--cluster-id-supported", "True",
              "--expect-record-too-large-exception", "False", "--num-cluster-nodes", "1", "--create-topics-supported", "True",
              "--describe-acls-supported", "False", "--describe-configs-supported", "True", "--idempotent-producer-supported", "True")
    has(said, "SUCCESS.")


@step
def verifiable_producer():
    name = topic(3)
    acked = produce(name, 2000)
    by_partition = {}
    for event in acked:
        by_partition.setdefault(event["partition"], []).append(event["offset"])
    for partition, seen in by_partition.items():
        assert sorted(seen) == list(range(len(seen))), f"partition {partition} has gaps or repeats"
    assert sum(offsets(name).values()) == 2000


@step
def verifiable_producer_acks_1():
    produce(topic(1), 500, "--acks", "1", "--repeating-keys", "10", "--value-prefix", "7")


@step
def verifiable_consumer():
    name = topic(3)
    produce(name, 1000)
    seen = events(process("VerifiableConsumer", "--topic", name, "--group-id", f"g-{RUN}", "--max-messages", "1000"))
    assert sum(e["count"] for e in seen if e["name"] == "records_consumed") == 1000
    commits = [e for e in seen if e["name"] == "offsets_committed"]
    assert commits and all(e["success"] for e in commits), commits
    assert sum(committed(f"g-{RUN}").values()) == 1000


@step
def verifiable_consumer_static_cooperative():
    name = topic(3)
    produce(name, 300)
    for member in ("a", "b"):
        # The second takes over from where the first has stopped.
        produce(name, 300)
        seen = events(process("VerifiableConsumer", "--topic", name, "--group-id", f"g-{RUN}", "--group-instance-id", "one", "--max-messages", "300",
                         "--assignment-strategy", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor", "--verbose"))
        values = [(e["partition"], e["offset"]) for e in seen if e["name"] == "record_data"]
        assert len(values) == len(set(values)), f"member {member} saw a record twice"
    assert 600 <= sum(committed(f"g-{RUN}").values()) <= 900


# Topics.


@step
def topics():
    name = topic(2, "--config", "retention.ms=3600000", "--config", "cleanup.policy=compact,delete")
    has(ok("TopicCommand", "--list"), name)
    has(ok("TopicCommand", "--describe", "--topic", name), "PartitionCount: 2", "ReplicationFactor: 1", "retention.ms=3600000", "Leader: 1", "Isr: 1")
    ok("TopicCommand", "--alter", "--topic", name, "--partitions", "5")
    has(ok("TopicCommand", "--describe", "--topic", name, "--partition-size-limit-per-response", "2"), "PartitionCount: 5", "Partition: 4")
    for health in ("--under-replicated-partitions", "--unavailable-partitions", "--under-min-isr-partitions"):
        assert name not in ok("TopicCommand", "--describe", "--topic", name, health), health
    has(ok("TopicCommand", "--describe", "--topics-with-overrides"), name)
    ok("TopicCommand", "--create", "--topic", name, "--if-not-exists")
    ok("TopicCommand", "--delete", "--topic", name)
    assert name not in ok("TopicCommand", "--list").split()


@step
def topics_errors():
    name = topic(2)
    refused("already exists", "TopicCommand", "--create", "--topic", name)
    refused("replication factor of 2 cannot be reached", "TopicCommand", "--create", "--topic", name + "-r", "--replication-factor", "2")
    refused("Unknown topic config name: no.such", "TopicCommand", "--create", "--topic", name + "-c", "--config", "no.such=1")
    refused("currently has 2 partition", "TopicCommand", "--alter", "--topic", name, "--partitions", "1")
    refused("does not exist as expected", "TopicCommand", "--describe", "--topic", name + "-none")


# Configurations.


@step
def configs_of_topics():
    name = topic()
    entity = ["--entity-type", "topics", "--entity-name", name]
    ok("ConfigCommand", "--alter", *entity, "--add-config", "retention.ms=7200000,max.message.bytes=2000000")
    has(ok("ConfigCommand", "--describe", *entity), "retention.ms=7200000", "max.message.bytes=2000000", "DYNAMIC_TOPIC_CONFIG")
    ok("ConfigCommand", "--alter", *entity, "--delete-config", "retention.ms")
    assert "retention.ms=7200000" not in ok("ConfigCommand", "--describe", *entity)
    has(ok("ConfigCommand", "--describe", *entity, "--all"), "segment.bytes=", "cleanup.policy=delete")
    refused("Invalid value -5 for configuration retention.ms|Value must be at least -1", "ConfigCommand", "--alter", *entity, "--add-config", "retention.ms=-5")


@step
def configs_of_brokers():
    # The default of all brokers, and then this one's own.
    for entity in (["--entity-type", "brokers", "--entity-default"], ["--entity-type", "brokers", "--entity-name", "1"]):
        ok("ConfigCommand", "--alter", *entity, "--add-config", "log.retention.ms=99000000")
        has(ok("ConfigCommand", "--describe", *entity), "log.retention.ms=99000000")
        ok("ConfigCommand", "--alter", *entity, "--delete-config", "log.retention.ms")
        assert "log.retention.ms=99000000" not in ok("ConfigCommand", "--describe", *entity)
    has(ok("ConfigCommand", "--describe", "--entity-type", "brokers", "--entity-name", "1", "--all"), "num.partitions=", "log.retention.hours=168")
    refused("Cannot update these configs dynamically", "ConfigCommand", "--alter", "--entity-type", "brokers", "--entity-name", "1", "--add-config", "node.id=7")


# Groups.


def a_group(partitions=2, count=400):
    name, group = topic(partitions), f"g-{RUN}-{uuid.uuid4().hex[:4]}"
    produce(name, count)
    process("VerifiableConsumer", "--topic", name, "--group-id", group, "--max-messages", str(count))
    return name, group


@step
def consumer_groups():
    name, group = a_group()
    has(ok("consumer.group.ConsumerGroupCommand", "--list"), group)
    has(ok("consumer.group.ConsumerGroupCommand", "--list", "--state"), group, "Empty")
    has(ok("consumer.group.ConsumerGroupCommand", "--list", "--type", "classic"), group)
    assert {row[4] for row in group_rows(group)} == {"0"}, group_rows(group)
    has(ok("consumer.group.ConsumerGroupCommand", "--describe", "--group", group, "--state"), "Empty")
    has(ok("consumer.group.ConsumerGroupCommand", "--describe", "--group", group, "--members"), "has no active members")
    has(ok("consumer.group.ConsumerGroupCommand", "--describe", "--all-groups"), group)
    ok("consumer.group.ConsumerGroupCommand", "--delete-offsets", "--group", group, "--topic", name + ":0")
    assert 0 not in committed(group)
    ok("consumer.group.ConsumerGroupCommand", "--delete", "--group", group)
    assert group not in ok("consumer.group.ConsumerGroupCommand", "--list").split()
    refused("does not exist|not found|GroupIdNotFound", "consumer.group.ConsumerGroupCommand", "--delete", "--group", group)


@step
def consumer_groups_reset_offsets():
    name, group = a_group(1)
    for args, expected in [
        (["--to-earliest"], 0), (["--to-latest"], 400), (["--to-offset", "7"], 7), (["--shift-by", "5"], 12), (["--shift-by", "-10000"], 0),
        (["--to-offset", "9999"], 400), (["--by-duration", "PT1H"], 0), (["--to-datetime", "2020-01-01T00:00:00.000"], 0), (["--to-current"], 0),
    ]:
        reset(group, "--topic", name, *args)
        assert committed(group) == {0: expected}, f"{args}: {committed(group)}"
    exported = ok("consumer.group.ConsumerGroupCommand", "--reset-offsets", "--group", group, "--topic", name, "--to-offset", "33", "--export", "--dry-run")
    row = next(line for line in exported.splitlines() if name in line)
    with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
        file.write(row + "\n")
        file.flush()
        reset(group, "--from-file", file.name)
    assert committed(group) == {0: 33}, committed(group)


@step
def consumer_groups_of_the_living():
    """A group with a member: its members are shown, and nobody may reset or delete it."""
    name, group = topic(2), f"g-{RUN}"
    produce(name, 10)
    command = [*JAVA, "org.apache.kafka.tools.VerifiableConsumer", "--bootstrap-server", BOOTSTRAP, "--topic", name, "--group-id", group]
    member = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    deadline = threading.Timer(TOOL_WAIT, member.kill)
    deadline.start()
    try:
        assert any("partitions_assigned" in line for line in member.stdout), "the member got nothing"
        # Somebody has to read what it goes on to say.
        threading.Thread(target=member.stdout.read, daemon=True).start()
        members = ok("consumer.group.ConsumerGroupCommand", "--describe", "--group", group, "--members", "--verbose")
        has(members, group, "127.0.0.1", f"{name}:0,1")
        has(ok("consumer.group.ConsumerGroupCommand", "--describe", "--group", group, "--state"), "Stable", "range")
        refused("current state is Stable", "consumer.group.ConsumerGroupCommand", "--reset-offsets", "--group", group, "--topic", name, "--to-earliest", "--execute")
        refused("not empty", "consumer.group.ConsumerGroupCommand", "--delete", "--group", group)
    finally:
        deadline.cancel()
        member.kill()
        member.wait()


@step
def groups():
    _, group = a_group(1, 10)
    has(ok("GroupsCommand", "--list"), group, "Classic")
    has(ok("GroupsCommand", "--list", "--group-type", "classic"), group)
    assert group not in ok("GroupsCommand", "--list", "--group-type", "share")


# Records and offsets.


@step
def delete_records():
    name = topic(2)
    produce(name, 400)
    ends = offsets(name)
    # Producers without keys fill one partition's batch before they turn to the next one.
    fuller = max(ends, key=ends.get)
    other = 1 - fuller
    asked = {"version": 1, "partitions": [{"topic": name, "partition": fuller, "offset": 50}, {"topic": name, "partition": other, "offset": -1}]}
    has(ok("DeleteRecordsCommand", "--offset-json-file", file_of(asked)), "low_watermark: 50")
    assert offsets(name, "--time", "earliest") == {fuller: 50, other: ends[other]}
    asked = {"version": 1, "partitions": [{"topic": name, "partition": 0, "offset": 100000}]}
    refused("OffsetOutOfRange|larger than the high watermark|out of range", "DeleteRecordsCommand", "--offset-json-file", file_of(asked))


@step
def get_offsets():
    name = topic(1)
    assert offsets(name) == {0: 0}
    before = int(time.time() * 1000)
    produce(name, 200)
    for args, expected in [
        ([], 200), (["--time", "latest"], 200), (["--time", "earliest"], 0), (["--time", str(before)], 0), (["--time", "earliest-local"], 0),
    ]:
        assert offsets(name, *args) == {0: expected}, f"{args}: {offsets(name, *args)}"
    assert 0 <= offsets(name, "--time", "max-timestamp")[0] < 200
    two = topic(2)
    said = ok("GetOffsetShell", "--topic-partitions", f"{two}:1", "--exclude-internal-topics")
    has(said, f"{two}:1:0")
    assert f"{two}:0:" not in said


# Performance tools: that they work, not how fast.


@step
def producer_and_consumer_performance():
    name = topic(2)
    said = ok("ProducerPerformance", "--topic", name, "--num-records", "20000", "--record-size", "200", "--throughput", "-1",
              "--command-property", "compression.type=zstd")
    has(said, "20000 records sent")
    rows = ok("ConsumerPerformance", "--topic", name, "--num-records", "20000", "--hide-header").splitlines()
    assert any(row.split(", ")[4:5] == ["20000"] for row in rows), rows


@step
def end_to_end_latency():
    said = ok("EndToEndLatency", "--topic", topic(1), "--num-records", "50", "--producer-acks", "all", "--record-size", "100")
    has(said, "Percentiles:")


# The broker.


@step
def log_dirs():
    name = topic(2)
    produce(name, 100)
    said = ok("LogDirsCommand", "--describe", "--topic-list", name, "--broker-list", "1")
    described = json.loads(next(line for line in said.splitlines() if line.startswith("{")))
    partitions = [p for d in described["brokers"][0]["logDirs"] for p in d["partitions"]]
    assert sorted(p["partition"] for p in partitions) == [f"{name}-0", f"{name}-1"], partitions
    assert sum(p["size"] for p in partitions) > 0
    assert all(d["error"] is None for d in described["brokers"][0]["logDirs"])


@step
def broker_api_versions():
    said = ok("BrokerApiVersionsCommand")
    has(said, "Produce(0): 0 to 13", "Fetch(1): 4 to ", "id: 1 rack: null")
    # The client must find a version in common for all that is served.
    assert "UNKNOWN" not in said, said


@step
def cluster():
    status, said = java("ClusterTool", "cluster-id", "--bootstrap-server", BOOTSTRAP)
    assert status == 0 and "Cluster ID:" in said, said
    status, said = java("ClusterTool", "list-endpoints", "--bootstrap-server", BOOTSTRAP)
    assert status == 0 and "127.0.0.1" in said, said
    status, said = java("ClusterTool", "unregister", "--bootstrap-server", BOOTSTRAP, "--id", "9")
    assert "Broker ID 9 is not currently registered" in said, said


@step
def leader_election():
    # Of one broker whoever should lead does.
    status, said = java("LeaderElectionCommand", "--bootstrap-server", BOOTSTRAP, "--election-type", "preferred", "--all-topic-partitions")
    assert status == 0, (status, said)


@step
def reassignment():
    name = topic(1)
    plan = file_of({"version": 1, "partitions": [{"topic": name, "partition": 0, "replicas": [1]}]})
    command = "reassign.ReassignPartitionsCommand", "--bootstrap-server", BOOTSTRAP
    status, said = java(*command, "--reassignment-json-file", plan, "--execute")
    assert status == 0 and "Successfully started partition reassignment" in said, (status, said)
    status, said = java(*command, "--reassignment-json-file", plan, "--verify")
    assert status == 0 and f"Reassignment of partition {name}-0 is completed" in said, (status, said)
    status, said = java(*command, "--list")
    assert status == 0 and "No partition reassignments found" in said, (status, said)


@step
def quorum():
    describe = "MetadataQuorumCommand", "--bootstrap-server", BOOTSTRAP, "describe"
    status, said = java(*describe, "--status")
    assert status == 0, (status, said)
    has(said, "LeaderId:", "HighWatermark:", "CurrentVoters:")
    status, said = java(*describe, "--replication")
    assert status == 0, (status, said)
    has(said, "Leader", "LogEndOffset")


# What Towpath does not have must say so.


@step
def refuses_acls():
    refused("does not support|UnsupportedVersion", "AclCommand", "--list")


@step
def refuses_quotas_and_users():
    refused("does not support|UnsupportedVersion", "ConfigCommand", "--alter", "--entity-type", "clients", "--entity-name", "c",
            "--add-config", "producer_byte_rate=1")
    refused("does not support|UnsupportedVersion", "ConfigCommand", "--alter", "--entity-type", "users", "--entity-name", "u",
            "--add-config", "SCRAM-SHA-256=[password=p]")


@step
def refuses_transactions():
    status, said = java("TransactionsCommand", "--bootstrap-server", BOOTSTRAP, "list")
    assert "does not support" in said or "UnsupportedVersion" in said, (status, said)


@step
def refuses_features():
    status, said = java("FeatureCommand", "--bootstrap-server", BOOTSTRAP, "upgrade", "--feature", "share.version=1")
    assert "does not support" in said or "UnsupportedVersion" in said, (status, said)


@step
def refuses_share_and_streams_groups():
    refused("does not support|UnsupportedVersion", "consumer.group.ShareGroupCommand", "--describe", "--group", f"none-{RUN}")
    refused("does not support|UnsupportedVersion", "streams.StreamsGroupCommand", "--describe", "--group", f"none-{RUN}")


@step
def refuses_delegation_tokens():
    refused("does not support|UnsupportedVersion|not enabled|not allowed", "DelegationTokenCommand", "--describe", "--command-config", os.devnull)


if __name__ == "__main__":
    if sys.argv[1:] == ["--list"]:
        print("\n".join(STEPS))
    else:
        try:
            STEPS[sys.argv[1]]()
        except AssertionError as error:
            sys.exit(f"{sys.argv[1]}: {error}")
        finally:
            host().kill()
