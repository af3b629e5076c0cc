"""What the probe scripts share: names of error codes, short names for common requests, one print form."""

import os
import sys
import time

import wire

BOOTSTRAP = os.environ.get("BOOTSTRAP", "127.0.0.1:29092")
# Part of every name, so that a probe can be asked again of the same broker.
RUN = os.environ.get("RUN") or f"{int(time.time()) % 1_000_000:06d}"

ERRORS = {
    -1: "UNKNOWN_SERVER_ERROR", 0: "ok", 1: "OFFSET_OUT_OF_RANGE", 2: "CORRUPT_MESSAGE", 3: "UNKNOWN_TOPIC_OR_PARTITION",
    5: "LEADER_NOT_AVAILABLE", 6: "NOT_LEADER_OR_FOLLOWER", 7: "REQUEST_TIMED_OUT", 8: "BROKER_NOT_AVAILABLE",
    10: "MESSAGE_TOO_LARGE", 12: "OFFSET_METADATA_TOO_LARGE", 14: "COORDINATOR_LOAD_IN_PROGRESS",
    15: "COORDINATOR_NOT_AVAILABLE", 16: "NOT_COORDINATOR", 17: "INVALID_TOPIC_EXCEPTION", 18: "RECORD_LIST_TOO_LARGE",
    19: "NOT_ENOUGH_REPLICAS", 21: "INVALID_REQUIRED_ACKS", 22: "ILLEGAL_GENERATION", 23: "INCONSISTENT_GROUP_PROTOCOL",
    24: "INVALID_GROUP_ID", 25: "UNKNOWN_MEMBER_ID", 26: "INVALID_SESSION_TIMEOUT", 27: "REBALANCE_IN_PROGRESS",
    28: "INVALID_COMMIT_OFFSET_SIZE", 29: "TOPIC_AUTHORIZATION_FAILED", 32: "INVALID_TIMESTAMP",
    35: "UNSUPPORTED_VERSION", 36: "TOPIC_ALREADY_EXISTS", 37: "INVALID_PARTITIONS", 38: "INVALID_REPLICATION_FACTOR",
    39: "INVALID_REPLICA_ASSIGNMENT", 40: "INVALID_CONFIG", 41: "NOT_CONTROLLER", 42: "INVALID_REQUEST",
    43: "UNSUPPORTED_FOR_MESSAGE_FORMAT", 44: "POLICY_VIOLATION", 45: "OUT_OF_ORDER_SEQUENCE_NUMBER",
    46: "DUPLICATE_SEQUENCE_NUMBER", 47: "INVALID_PRODUCER_EPOCH", 48: "INVALID_TXN_STATE",
    49: "INVALID_PRODUCER_ID_MAPPING", 50: "INVALID_TRANSACTION_TIMEOUT", 51: "CONCURRENT_TRANSACTIONS",
    53: "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", 56: "KAFKA_STORAGE_ERROR", 59: "UNKNOWN_PRODUCER_ID",
    60: "REASSIGNMENT_IN_PROGRESS", 67: "INVALID_PRINCIPAL_TYPE", 68: "NON_EMPTY_GROUP", 69: "GROUP_ID_NOT_FOUND",
    70: "FETCH_SESSION_ID_NOT_FOUND", 71: "INVALID_FETCH_SESSION_EPOCH", 74: "FENCED_LEADER_EPOCH",
    75: "UNKNOWN_LEADER_EPOCH", 76: "UNSUPPORTED_COMPRESSION_TYPE", 78: "OFFSET_NOT_AVAILABLE",
    79: "MEMBER_ID_REQUIRED", 82: "FENCED_INSTANCE_ID", 86: "GROUP_SUBSCRIBED_TO_TOPIC", 87: "INVALID_RECORD",
    88: "UNSTABLE_OFFSET_COMMIT", 90: "PRODUCER_FENCED", 95: "INCONSISTENT_CLUSTER_ID", 100: "UNKNOWN_TOPIC_ID",
    103: "INCONSISTENT_TOPIC_ID", 105: "TRANSACTIONAL_ID_NOT_FOUND", 106: "FETCH_SESSION_TOPIC_ID_ERROR",
    110: "FENCED_MEMBER_EPOCH", 113: "STALE_MEMBER_EPOCH", 120: "TRANSACTION_ABORTABLE", 129: "REBOOTSTRAP_REQUIRED",
    134: "GROUP_DELETION_FAILED",
}


def name(code):
    return f"{code} {ERRORS.get(code, '?')}"


def show(question, answer):
    """One line per question; error codes get their names; bytes are counted, not printed."""
    print(f"{question} => {plain(answer)}", flush=True)


def plain(value):
    if isinstance(value, dict):
        parts = []
        for key, item in value.items():
            if key == "ThrottleTimeMs" and item == 0:
                continue
            parts.append(f"{key}={name(item) if key == 'ErrorCode' else plain(item)}")
        return "{" + " ".join(parts) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(plain(item) for item in value) + "]"
    if isinstance(value, bytes):
        return f"<{len(value)} bytes>"
    return repr(value) if isinstance(value, str) else str(value)


def connect(timeout=15):
    return wire.Connection(BOOTSTRAP, timeout)


def attempt(api, version, body=None, **kw):
    """Asks on a connection of its own; a closed connection is an answer too."""
    connection = connect()
    try:
        return connection.ask(api, version, body, **kw)
    except wire.Closed as closed:
        return f"(connection {closed})"
    except TimeoutError:
        return "(no answer)"
    finally:
        connection.close()


def create(topic, partitions=1, **configs):
    answer = attempt("CreateTopics", 7, {
        "Topics": [{"Name": topic, "NumPartitions": partitions, "ReplicationFactor": 1,
                    "Configs": [{"Name": k.replace("_", "."), "Value": str(v)} for k, v in configs.items()]}],
        "TimeoutMs": 10000,
    })
    assert answer["Topics"][0]["ErrorCode"] in (0, 36), answer
    # Kafka answers before the broker leads the partitions.
    every = [{"PartitionIndex": i, "Timestamp": -1} for i in range(partitions)]
    for _ in range(200):
        found = attempt("ListOffsets", 4, {"ReplicaId": -1, "Topics": [{"Name": topic, "Partitions": every}]})
        if all(p["ErrorCode"] == 0 for p in found["Topics"][0]["Partitions"]):
            break
        time.sleep(0.05)
    return answer["Topics"][0]["TopicId"]


def produce(topic, data, *, partition=0, version=9, acks=-1, txn=None, full=False, topic_id=None):
    entry = {"PartitionData": [{"Index": partition, "Records": data}]}
    entry.update({"TopicId": topic_id or wire.ZERO} if version >= 13 else {"Name": topic})
    answer = attempt("Produce", version, {"TransactionalId": txn, "Acks": acks, "TimeoutMs": 5000, "TopicData": [entry]})
    if full or isinstance(answer, str):
        return answer
    return answer["Responses"][0]["PartitionResponses"][0]


def sections(*functions):
    """Runs the functions named on the command line, or all."""
    # Made by the first question about a group; here, so that answers do not depend on who asked before.
    while attempt("FindCoordinator", 2, {"Key": RUN, "KeyType": 0})["ErrorCode"] != 0:
        time.sleep(0.1)
    wanted = [a for a in sys.argv[1:] if not a.startswith("--")]
    for function in functions:
        if not wanted or function.__name__ in wanted:
            print(f"# {function.__name__}")
            function()
