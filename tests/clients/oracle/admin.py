"""Questions about topics, configurations, log directories and producer ids: the admin's requests."""

import json
import os
import sys
import time

import wire
from probe import RUN, attempt, create, produce, sections, show
from wire import batch

T = f"a-{RUN}"
NOW = int(time.time() * 1000)
UNKNOWN_ID = "11111111-1111-1111-1111-111111111111"
TOPIC, BROKER, BROKER_LOGGER = 2, 4, 8
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3


def create_topics():
    def ask(name, partitions=1, replication=1, version=7, configs=(), assignments=(), validate=False, whole=False):
        answer = attempt("CreateTopics", version, {"Topics": [{"Name": name, "NumPartitions": partitions, "ReplicationFactor": replication,
            "Configs": [{"Name": k, "Value": v} for k, v in configs],
            "Assignments": [{"PartitionIndex": p, "BrokerIds": b} for p, b in assignments]}], "TimeoutMs": 5000, "ValidateOnly": validate})
        if whole or isinstance(answer, str):
            return answer
        topic = answer["Topics"][0]
        if topic.get("Configs"):
            topic["Configs"] = f"{len(topic['Configs'])} entries"
        return topic

    show("ok v7", ask(T))
    show("ok v2", ask(T + "v2", version=2))
    show("ok v4", ask(T + "v4", version=4))
    show("v5 with two configs set", ask(T + "v5", version=5, configs=[("retention.ms", "1000"), ("cleanup.policy", "compact")], whole=True))
    show("existing", ask(T))
    show("existing, validate only", ask(T, validate=True))
    show("validate only", ask(T + "vo", validate=True))
    for p in (0, -1, -2):
        show(f"partitions {p} v7", ask(f"{T}p{p}", p))
    show("partitions -1 v3", ask(f"{T}p3", -1, version=3))
    show("partitions -1 v4", ask(f"{T}p4", -1, version=4))
    show("partitions 20000", ask(f"{T}pm", 20000))
    for r in (-1, 0, 2, -2):
        show(f"replication {r}", ask(f"{T}r{r}", 1, r))
    for bad in ("", ".", "..", "a b", "a/b", "ü", "x" * 250):
        show(f"name {bad[:6]!r} ({len(bad)})", ask(bad))
    show("dots first", ask(f"{T}.x"))
    show("then underscore", ask(f"{T}_x"))
    show("__consumer_offsets", ask("__consumer_offsets"))
    show("__cluster_metadata", ask("__cluster_metadata"))
    dup = {"Name": T + "d", "NumPartitions": 1, "ReplicationFactor": 1}
    show("same name twice and a good one", attempt("CreateTopics", 4, {"Topics": [dup, dup, {**dup, "Name": T + "d2"}], "TimeoutMs": 5000}))
    show("order of several", attempt("CreateTopics", 4, {"Topics": [{**dup, "Name": T + n} for n in ("z", "y", "a")], "TimeoutMs": 5000}))
    show("unknown config", ask(T + "c1", configs=[("no.such", "1")]))
    for k, v in (("retention.ms", "abc"), ("retention.ms", "-2"), ("retention.ms", None), ("cleanup.policy", "shred"), ("cleanup.policy", ""),
                 ("min.insync.replicas", "0"), ("segment.bytes", "10"), ("compression.type", "brotli"), ("preallocate", "maybe"),
                 ("min.cleanable.dirty.ratio", "1.5"), ("max.message.bytes", "-1"), ("message.timestamp.type", "x"), ("message.format.version", "3.0"),
                 ("segment.bytes", "99999999999"), ("remote.storage.enable", "true"), ("retention.ms", " 5000 "), ("cleanup.policy", "delete,compact"), ("cleanup.policy", "compact,compact")):
        show(f"config {k}={v!r}", ask(f"{T}cf{abs(hash((k, str(v))))}", configs=[(k, v)]))
    show("min.insync.replicas 2 on one replica", ask(T + "mi", configs=[("min.insync.replicas", "2")]))
    show("same config twice", ask(T + "c2", configs=[("retention.ms", "1"), ("retention.ms", "2")]))
    show("assignments 0:[1],1:[1], -1/-1", ask(T + "as", -1, -1, assignments=[(0, [1]), (1, [1])]))
    show("assignments with partitions 2", ask(T + "as2", 2, -1, assignments=[(0, [1]), (1, [1])]))
    show("assignments with replication 1", ask(T + "as2", -1, 1, assignments=[(0, [1]), (1, [1])]))
    show("assignment to unknown broker", ask(T + "as3", -1, -1, assignments=[(0, [7])]))
    show("assignment starting at 1", ask(T + "as4", -1, -1, assignments=[(1, [1])]))
    show("assignment same broker twice", ask(T + "as5", -1, -1, assignments=[(0, [1, 1])]))
    show("assignment empty replicas", ask(T + "as6", -1, -1, assignments=[(0, [])]))
    show("same partition assigned twice", ask(T + "as7", -1, -1, assignments=[(0, [1]), (0, [1])]))
    show("empty request", attempt("CreateTopics", 7, {"Topics": [], "TimeoutMs": 5000}))
    show("timeout 0", attempt("CreateTopics", 4, {"Topics": [{**dup, "Name": T + "t0"}], "TimeoutMs": 0}))
    show("timeout -1", attempt("CreateTopics", 4, {"Topics": [{**dup, "Name": T + "t1"}], "TimeoutMs": -1}))
    time.sleep(0.3)
    show("  did timeout 0 create it?", attempt("Metadata", 4, {"Topics": [{"Name": T + "t0"}, {"Name": T + "t1"}], "AllowAutoTopicCreation": False})["Topics"])
    answer = ask(T + "full", configs=[("retention.ms", "1000")], whole=True)["Topics"][0]
    show("v7 configs: names", [c["Name"] for c in answer["Configs"]])
    show("v7 configs: not source 5", [c for c in answer["Configs"] if c["ConfigSource"] != 5])


def delete_topics():
    ids = {n: create(T + n) for n in ("x1", "x2", "x3", "x4")}
    show("by name v5", attempt("DeleteTopics", 5, {"TopicNames": [T + "x1"], "TimeoutMs": 5000}))
    show("unknown name v5", attempt("DeleteTopics", 5, {"TopicNames": ["nope"], "TimeoutMs": 5000}))
    show("unknown name v4", attempt("DeleteTopics", 4, {"TopicNames": ["nope"], "TimeoutMs": 5000}))
    one = lambda name, id=wire.ZERO: attempt("DeleteTopics", 6, {"Topics": [{"Name": name, "TopicId": id}], "TimeoutMs": 5000})
    show("by id v6", one(None, ids["x2"]))
    show("by name v6", one(T + "x3"))
    show("unknown name v6", one("nope"))
    show("unknown id v6", one(None, UNKNOWN_ID))
    show("name and id v6", one(T + "x4", ids["x4"]))
    show("neither v6", one(None))
    show("empty name v6", one(""))
    show("same name twice v6", attempt("DeleteTopics", 6, {"Topics": [{"Name": T + "x4"}, {"Name": T + "x4"}], "TimeoutMs": 5000}))
    show("same name twice v5", attempt("DeleteTopics", 5, {"TopicNames": [T + "x4", T + "x4"], "TimeoutMs": 5000}))
    show("name and its id in two entries", attempt("DeleteTopics", 6, {"Topics": [{"Name": T + "x4"}, {"Name": None, "TopicId": ids["x4"]}], "TimeoutMs": 5000}))
    show("empty request", attempt("DeleteTopics", 6, {"Topics": [], "TimeoutMs": 5000}))
    show("internal topic __share_group_state (absent or not)", one("__nope_internal"))
    first = create(T + "again")
    one(T + "again")
    show("same name again gets another id", create(T + "again") != first)


def create_partitions():
    create(T + "cp", 2)

    def ask(count, name=T + "cp", assignments=None, validate=False):
        return attempt("CreatePartitions", 3, {"Topics": [{"Name": name, "Count": count, "Assignments": None if assignments is None else [{"BrokerIds": b} for b in assignments]}],
                                               "TimeoutMs": 5000, "ValidateOnly": validate})["Results"][0]

    show("fewer", ask(1))
    show("equal", ask(2))
    show("0", ask(0))
    show("-1", ask(-1))
    show("validate only 3", ask(3, validate=True))
    show("more 3", ask(3))
    show("4 with assignment [[1]]", ask(4, assignments=[[1]]))
    show("6 with one assignment", ask(6, assignments=[[1]]))
    show("5 with two assignments", ask(5, assignments=[[1], [1]]))
    show("5 to unknown broker", ask(5, assignments=[[9]]))
    show("5 with empty assignments", ask(5, assignments=[]))
    show("5 with [1,1]", ask(5, assignments=[[1, 1]]))
    show("unknown topic", ask(5, "nope"))
    show("20000", ask(20000))
    show("topic twice", attempt("CreatePartitions", 3, {"Topics": [{"Name": T + "cp", "Count": 8, "Assignments": None}, {"Name": T + "cp", "Count": 9, "Assignments": None}], "TimeoutMs": 5000}))


def delete_records():
    topic = T + "dr"
    create(topic, 2)
    produce(topic, batch(n=10, ts=NOW))

    def ask(offset, partition=0, name=topic):
        return attempt("DeleteRecords", 2, {"Topics": [{"Name": name, "Partitions": [{"PartitionIndex": partition, "Offset": offset}]}], "TimeoutMs": 5000})["Topics"]

    for offset in (3, 2, 3, 11, 10, -1, -2):
        show(f"to {offset}", ask(offset))
    show("-1 on empty", ask(-1, 1))
    show("0 on empty", ask(0, 1))
    show("unknown partition", ask(0, 9))
    show("unknown topic", ask(0, 0, "nope"))
    show("internal topic", ask(0, 0, "__consumer_offsets"))
    create(topic + "c", 1, cleanup_policy="compact")
    produce(topic + "c", batch(n=3, ts=NOW))
    show("compacted topic", ask(1, 0, topic + "c"))
    create(topic + "cd", 1, cleanup_policy="compact,delete")
    produce(topic + "cd", batch(n=3, ts=NOW))
    show("compact,delete topic", ask(1, 0, topic + "cd"))


def describe(kind, name, keys=None, version=4, synonyms=True, documentation=False):
    resource = {"ResourceType": kind, "ResourceName": name, "ConfigurationKeys": keys}
    body = {"Resources": [resource], "IncludeSynonyms": synonyms}
    if version >= 3:
        body["IncludeDocumentation"] = documentation
    return attempt("DescribeConfigs", version, body)["Results"][0]


def describe_configs():
    topic = T + "dc"
    create(topic, 1, retention_ms=1000, cleanup_policy="compact")
    full = describe(TOPIC, topic)
    plain = T + "dcp"
    create(plain, 1)
    table = []
    for entry in sorted(describe(TOPIC, plain)["Configs"], key=lambda c: c["Name"]):
        table.append({"name": entry["Name"], "value": entry["Value"], "type": entry["ConfigType"], "source": entry["ConfigSource"],
                      "read_only": entry["ReadOnly"], "sensitive": entry["IsSensitive"],
                      "synonyms": [[s["Name"], s["Value"], s["Source"]] for s in entry["Synonyms"]]})
    if "--save" in sys.argv:
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "topic-configs.json")
        with open(path, "w") as out:
            out.write("[\n" + ",\n".join(json.dumps(e) for e in table) + "\n]\n")
    show("order of names as answered", [c["Name"] for c in full["Configs"]])
    show("head of answer", {k: v for k, v in full.items() if k != "Configs"})
    show("set ones", [c for c in full["Configs"] if c["ConfigSource"] == 1])
    show("v1 one key", describe(TOPIC, topic, ["retention.ms"], version=1))
    show("v1 without synonyms", describe(TOPIC, topic, ["retention.ms"], version=1, synonyms=False))
    show("v3 documentation", describe(TOPIC, topic, ["retention.ms"], version=3, documentation=True))
    show("v4 documentation off", describe(TOPIC, topic, ["retention.ms"]))
    show("unknown key only", describe(TOPIC, topic, ["no.such"]))
    show("empty key list", {**describe(TOPIC, topic, []), "Configs": len(describe(TOPIC, topic, [])["Configs"])})
    show("unknown topic", describe(TOPIC, "nope"))
    show("bad topic name", describe(TOPIC, "a b"))
    show("empty topic name", describe(TOPIC, ""))
    show("resource type 0", describe(0, "x"))
    show("resource type 3 (group? no)", describe(3, "x"))
    show("group resource (32)", [(c["Name"], c["Value"], c["ConfigSource"]) for c in describe(32, "some-group")["Configs"]])
    show("unknown broker 9", describe(BROKER, "9"))
    show("broker name abc", describe(BROKER, "abc"))
    default = describe(BROKER, "")
    show("default broker ''", {**default, "Configs": [(c["Name"], c["Value"], c["ConfigSource"]) for c in default["Configs"]]})
    answer = describe(BROKER, "1")
    show("broker 1 count", len(answer["Configs"]))
    show("broker 1 not read only", [c["Name"] for c in answer["Configs"] if not c["ReadOnly"]])
    if "--save" in sys.argv:
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "broker-dynamic-configs.json")
        with open(path, "w") as out:
            out.write(json.dumps(sorted(c["Name"] for c in answer["Configs"] if not c["ReadOnly"]), indent=0) + "\n")
    show("broker 1 sample", [c for c in answer["Configs"] if c["Name"] in ("log.retention.ms", "num.partitions", "log.dirs", "ssl.key.password", "log.retention.hours", "broker.id", "node.id")])
    show("broker 1 sources seen", sorted({c["ConfigSource"] for c in answer["Configs"]}))
    loggers = describe(BROKER_LOGGER, "1")
    show("broker logger", {**loggers, "Configs": f"{len(loggers['Configs'])}, first {loggers['Configs'][:1]}"})
    show("two resources same topic", len(attempt("DescribeConfigs", 4, {"Resources": [{"ResourceType": TOPIC, "ResourceName": topic, "ConfigurationKeys": ["retention.ms"]}] * 2})["Results"]))


def incremental():
    topic = T + "ic"
    create(topic, 1, retention_ms=1000)

    def ask(*ops, kind=TOPIC, name=topic, validate=False):
        return attempt("IncrementalAlterConfigs", 1, {"Resources": [{"ResourceType": kind, "ResourceName": name,
            "Configs": [{"Name": k, "ConfigOperation": op, "Value": v} for k, op, v in ops]}], "ValidateOnly": validate})["Responses"][0]

    def value(key):
        time.sleep(0.2)
        return [(c["Value"], c["ConfigSource"]) for c in describe(TOPIC, topic, [key])["Configs"]]

    show("set", ask(("retention.ms", SET, "5000")))
    show("  value", value("retention.ms"))
    show("validate only", ask(("retention.ms", SET, "7000"), validate=True))
    show("  value", value("retention.ms"))
    show("delete", ask(("retention.ms", DELETE, None)))
    show("  value", value("retention.ms"))
    show("delete one not set", ask(("retention.ms", DELETE, None)))
    show("delete unknown name", ask(("no.such", DELETE, None)))
    show("set unknown name", ask(("no.such", SET, "1")))
    show("set null", ask(("retention.ms", SET, None)))
    show("set bad value", ask(("retention.ms", SET, "abc")))
    show("set -2", ask(("retention.ms", SET, "-2")))
    show("append to non-list", ask(("retention.ms", APPEND, "1")))
    show("subtract from non-list", ask(("retention.ms", SUBTRACT, "1")))
    show("append compact to cleanup.policy", ask(("cleanup.policy", APPEND, "compact")))
    show("  value", value("cleanup.policy"))
    show("append compact again", ask(("cleanup.policy", APPEND, "compact")))
    show("  value", value("cleanup.policy"))
    show("subtract delete", ask(("cleanup.policy", SUBTRACT, "delete")))
    show("  value", value("cleanup.policy"))
    show("subtract absent", ask(("cleanup.policy", SUBTRACT, "delete")))
    show("subtract last", ask(("cleanup.policy", SUBTRACT, "compact")))
    show("  value", value("cleanup.policy"))
    show("append bad", ask(("cleanup.policy", APPEND, "shred")))
    show("append null", ask(("cleanup.policy", APPEND, None)))
    show("operation 9", ask(("retention.ms", 9, "1")))
    show("same key twice", ask(("retention.ms", SET, "1"), ("retention.ms", SET, "2")))
    show("one good, one bad", ask(("retention.ms", SET, "9000"), ("segment.bytes", SET, "abc")))
    show("  value", value("retention.ms"))
    show("no ops", ask())
    show("empty name", ask(("", SET, "1")))
    show("unknown topic", ask(("retention.ms", SET, "1"), name="nope"))
    show("empty topic", ask(("retention.ms", SET, "1"), name=""))
    show("bad topic name", ask(("retention.ms", SET, "1"), name="a b"))
    show("resource type 0", ask(("retention.ms", SET, "1"), kind=0))
    show("resource type 99", ask(("retention.ms", SET, "1"), kind=99))
    show("broker 1 log.retention.ms", ask(("log.retention.ms", SET, "604800000"), kind=BROKER, name="1"))
    show("broker 1 read-only node.id", ask(("node.id", SET, "2"), kind=BROKER, name="1"))
    show("broker 1 num.partitions", ask(("num.partitions", SET, "2"), kind=BROKER, name="1"))
    show("broker 9", ask(("log.retention.ms", SET, "604800000"), kind=BROKER, name="9"))
    show("broker abc", ask(("log.retention.ms", SET, "604800000"), kind=BROKER, name="abc"))
    show("default broker", ask(("log.retention.ms", SET, "604800000"), kind=BROKER, name=""))
    show("broker unknown name", ask(("no.such", SET, "604800000"), kind=BROKER, name="1"))
    time.sleep(0.3)
    show("  topic after: ", [c for c in describe(TOPIC, T + "ic", ["retention.ms"])["Configs"]])
    ask(("log.retention.ms", DELETE, None), kind=BROKER, name="1")
    ask(("log.retention.ms", DELETE, None), kind=BROKER, name="")
    ask(("no.such", DELETE, None), kind=BROKER, name="1")
    show("group resource", ask(("consumer.session.timeout.ms", SET, "50000"), kind=32, name="g"))
    show("group resource unknown", ask(("no.such", SET, "50000"), kind=32, name="g"))
    show("same resource twice", attempt("IncrementalAlterConfigs", 1, {"Resources": [{"ResourceType": TOPIC, "ResourceName": topic, "Configs": [{"Name": "retention.ms", "ConfigOperation": 0, "Value": "1"}]}] * 2}))
    show("min.insync.replicas 2 (one replica)", ask(("min.insync.replicas", SET, "2")))


def legacy_alter():
    topic = T + "la"
    create(topic, 1, retention_ms=1000, segment_ms=100000)

    def ask(*configs, kind=TOPIC, name=topic, validate=False):
        return attempt("AlterConfigs", 2, {"Resources": [{"ResourceType": kind, "ResourceName": name, "Configs": [{"Name": k, "Value": v} for k, v in configs]}], "ValidateOnly": validate})["Responses"][0]

    def own():
        time.sleep(0.2)
        return [(c["Name"], c["Value"]) for c in describe(TOPIC, topic)["Configs"] if c["ConfigSource"] == 1]

    show("before", own())
    show("validate only", ask(("retention.ms", "5"), validate=True))
    show("set one", ask(("retention.ms", "2000")))
    show("  the other went back to its default", own())
    show("unknown", ask(("no.such", "1")))
    show("bad value", ask(("retention.ms", "x")))
    show("null value", ask(("retention.ms", None)))
    show("same key twice", ask(("retention.ms", "1"), ("retention.ms", "2")))
    show("none", ask())
    show("  own", own())
    show("unknown topic", ask(("retention.ms", "1"), name="nope"))


def log_dirs():
    topic = T + "ld"
    create(topic, 2)
    produce(topic, batch(n=10, ts=NOW))
    asked = lambda version, topics: attempt("DescribeLogDirs", version, {"Topics": topics})
    for version in (1, 2, 3, 4, 5):
        show(f"v{version} one topic", asked(version, [{"Topic": topic, "Partitions": [0, 1]}]))
    show("unknown topic", asked(4, [{"Topic": "nope", "Partitions": [0]}]))
    show("unknown partition", asked(4, [{"Topic": topic, "Partitions": [9]}]))
    show("empty list", asked(4, []))
    answer = asked(4, None)
    show("null list", {"Results": [{**r, "Topics": len(r["Topics"])} for r in answer["Results"]]})


def producer_ids():
    def ask(version=5, txn=None, timeout=60000, pid=-1, epoch=-1):
        body = {"TransactionalId": txn, "TransactionTimeoutMs": timeout}
        if version >= 3:
            body.update({"ProducerId": pid, "ProducerEpoch": epoch})
        for _ in range(50):
            answer = attempt("InitProducerId", version, body)
            if answer["ErrorCode"] not in (14, 15, 16, 51):
                return answer
            time.sleep(0.1)
        return answer

    for version in (0, 2, 3, 5):
        show(f"null id v{version}", ask(version))
    show("null id, timeout 0", ask(timeout=0))
    show("null id, timeout -1", ask(timeout=-1))
    show("null id with pid 5 epoch 0", ask(pid=5, epoch=0))
    show("null id with pid 5 epoch -1", ask(pid=5, epoch=-1))
    show("empty id", ask(txn=""))
    attempt("FindCoordinator", 2, {"Key": "t-" + RUN, "KeyType": 1})
    show("id t", ask(txn="t-" + RUN))
    show("id t again", ask(txn="t-" + RUN))
    show("id, timeout 0", ask(txn="t2-" + RUN, timeout=0))
    show("id, timeout 1 h (above the maximum)", ask(txn="t2-" + RUN, timeout=3_600_000))


sections(create_topics, delete_topics, create_partitions, delete_records, describe_configs, incremental, legacy_alter, log_dirs, producer_ids)
