"""Questions about Metadata, ApiVersions, DescribeTopicPartitions, DescribeCluster and broken frames."""

import struct
import time

import wire
from probe import RUN, attempt, connect, create, sections, show

T = f"m-{RUN}"
UNKNOWN_ID = "11111111-1111-1111-1111-111111111111"


def brief(answer):
    if isinstance(answer, str):
        return answer
    return {**{k: v for k, v in answer.items() if k not in ("Brokers", "Topics", "ClusterId")}, "Brokers": len(answer["Brokers"]),
            "Topics": [{k: v for k, v in t.items() if k != "Partitions"} | {"Partitions": len(t["Partitions"])} for t in answer["Topics"]]}


def metadata(names, version=9, auto=False, **kw):
    body = {"Topics": None if names is None else [n if isinstance(n, dict) else {"Name": n} for n in names], **kw}
    if version >= 4:
        body["AllowAutoTopicCreation"] = auto
    return attempt("Metadata", version, body)


def topics():
    ids = {name: create(name) for name in (T + "b", T + "a", T + "c")}
    show("one topic, whole answer v13", metadata([T + "a"], 13))
    show("one topic, whole answer v0", metadata([T + "a"], 0))
    for version in (0, 1, 4, 9, 12, 13):
        answer = metadata([], version)
        show(f"empty list v{version}", f"{len(answer['Topics'])} topics, error {answer.get('ErrorCode')}")
    for version in (1, 9, 12):
        answer = metadata(None, version)
        show(f"null list v{version}", f"{len(answer['Topics'])} topics")
    names = [t["Name"] for t in metadata(None, 9)["Topics"]]
    show("null list sorted?", names == sorted(names))
    show("null list v0 on the wire", attempt("Metadata", 0, raw=b"\xff\xff\xff\xff"))
    show("asked b, c, a", brief(metadata([T + "b", T + "c", T + "a"])))
    show("asked a twice", brief(metadata([T + "a", T + "a"])))
    show("unknown, no auto create", brief(metadata(["nope-" + RUN])))
    show("unknown, no auto create, v12", brief(metadata(["nope-" + RUN], 12)))
    for bad in ("", ".", "..", "a b", "ü", "x" * 249, "x" * 250, "a/b"):
        show(f"name {bad[:5]!r} ({len(bad)}) no auto create", brief(metadata([bad])))
        if bad != "x" * 249:
            show(f"name {bad[:5]!r} ({len(bad)}) auto create", brief(metadata([bad], auto=True)))
    show("auto create: first answer", metadata(["auto-" + RUN], auto=True))
    show("auto create: at once again", brief(metadata(["auto-" + RUN], auto=True)))
    time.sleep(0.5)
    show("auto create: later", brief(metadata(["auto-" + RUN], auto=True)))
    show("auto create v0 (always on)", brief(metadata(["auto0-" + RUN], 0)))
    show("auto create v3", brief(metadata(["auto3-" + RUN], 3)))
    time.sleep(0.5)
    show("auto create v3 later", brief(metadata(["auto3-" + RUN], 3)))
    show("auto create colliding a.b / a_b", [brief(metadata(["co.l-" + RUN], auto=True)), time.sleep(0.5), brief(metadata(["co_l-" + RUN], auto=True))])
    show("auto create of __consumer_offsets-like internal names", brief(metadata(["__share_group_state"], auto=True)))
    show("by id v12", brief(metadata([{"Name": None, "TopicId": ids[T + "a"]}], 12)))
    show("by unknown id v12", metadata([{"Name": None, "TopicId": UNKNOWN_ID}], 12))
    show("id and name v12, both right", brief(metadata([{"Name": T + "a", "TopicId": ids[T + "a"]}], 12)))
    show("id of b and name a v12", brief(metadata([{"Name": T + "a", "TopicId": ids[T + "b"]}], 12)))
    show("null name and zero id v12", brief(metadata([{"Name": None}], 12)))
    show("by id v10 (null name)", brief(metadata([{"Name": None, "TopicId": ids[T + "a"]}], 10)))
    show("by id v10 (empty name)", brief(metadata([{"Name": "", "TopicId": ids[T + "a"]}], 10)))
    show("id and name v10", brief(metadata([{"Name": T + "a", "TopicId": ids[T + "a"]}], 10)))
    show("ids and names mixed v12", brief(metadata([{"Name": T + "b"}, {"Name": None, "TopicId": ids[T + "a"]}], 12)))
    show("authorized ops asked v8", brief(attempt("Metadata", 8, {"Topics": [{"Name": T + "a"}], "IncludeClusterAuthorizedOperations": True, "IncludeTopicAuthorizedOperations": True})))
    show("topic authorized ops asked v12", brief(attempt("Metadata", 12, {"Topics": [{"Name": T + "a"}], "IncludeTopicAuthorizedOperations": True})))
    show("internal topic", brief(metadata(["__consumer_offsets"])))


def api_versions():
    body = {"ClientSoftwareName": "oracle", "ClientSoftwareVersion": "1.0"}
    brief = lambda a: a if isinstance(a, str) else {**a, "ApiKeys": f"{len(a['ApiKeys'])} keys, first {a['ApiKeys'][:1]}"}
    for version in (0, 1, 2, 3, 4, 5):
        show(f"v{version}", brief(attempt("ApiVersions", version, body if version >= 3 else {})))
    for version in (6, 99, -1):
        c = connect()
        c.frame(struct.pack(">hhih", 18, version, 7, -1) + b"\0\0\0\0")
        try:
            data = c.receive_raw()
            show(f"v{version}: {data.hex()} as v0", wire.Codec(wire.SCHEMAS["ApiVersionsResponse"]).decode(data[4:], 0))
        except wire.Closed as e:
            show(f"v{version}", str(e))
    for name, version in (("", "1"), ("a b", "1"), ("-a", "1"), ("a-", "1"), ("a", ""), ("a", "1 2"), ("a" * 300, "1"), ("a.b-c", "1.0-SNAPSHOT")):
        show(f"software {name[:10]!r} ({len(name)}) {version!r}", brief(attempt("ApiVersions", 3, {"ClientSoftwareName": name, "ClientSoftwareVersion": version})))
    cluster = attempt("DescribeCluster", 0, {})["ClusterId"]
    for what, extra in {"right cluster and node": (cluster, 1), "other cluster": ("nope", 1), "other node": (cluster, 9), "null cluster, node 1": (None, 1), "cluster, node -1": (cluster, -1)}.items():
        show(f"v5 {what}", brief(attempt("ApiVersions", 5, {**body, "ClusterId": extra[0], "NodeId": extra[1]})))


def frames():
    def raw(what, payload, length=None, then=True):
        c = connect(4)
        c.sock.sendall(struct.pack(">i", len(payload) if length is None else length) + payload)
        try:
            answer = c.receive_raw().hex()[:120]
        except wire.Closed as e:
            answer = f"({e})"
        except TimeoutError:
            answer = "(no answer in 4 s, connection open)"
        show(what, answer)
        c.close()

    head = lambda key, version, client=b"\xff\xff": struct.pack(">hhi", key, version, 5) + client
    raw("unknown api key 999", head(999, 0))
    raw("api key -1", head(-1, 0))
    raw("api key 4 (removed)", head(4, 0))
    raw("Metadata v99", head(3, 99) + b"\0")
    raw("Metadata v-1", head(3, -1))
    raw("Fetch v3 (below minimum)", head(1, 3) + b"\0" * 20)
    raw("Metadata v1, null client id, empty list", head(3, 1) + b"\0\0\0\0")
    raw("Metadata v1, body missing", head(3, 1))
    raw("Metadata v1, trailing bytes", head(3, 1) + b"\0\0\0\0" + b"xyz")
    raw("Metadata v9, trailing bytes", head(3, 9) + b"\0" + b"\1\0\0\0\0" + b"xyz")
    raw("Metadata v9, unknown tagged field in header and body", head(3, 9) + b"\x01\x63\x02hi" + b"\1\0\0\0" + b"\x01\x63\x02hi")
    raw("Metadata v1, array length 2^31-1", head(3, 1) + b"\x7f\xff\xff\xff")
    raw("Metadata v1, array length -2", head(3, 1) + b"\xff\xff\xff\xfe")
    raw("Metadata v1, string length -5", head(3, 1) + b"\0\0\0\1\xff\xfb")
    raw("Metadata v1, string not utf-8", head(3, 1) + b"\0\0\0\1\0\2\xff\xfe")
    raw("Metadata v4, bool 7", head(3, 4) + b"\0\0\0\0\7")
    raw("client id not utf-8", head(3, 1, b"\0\2\xff\xfe") + b"\0\0\0\0")
    raw("client id cut", head(3, 1, b"\0\x20ab"))
    raw("empty frame (length 0)", b"")
    raw("frame of 3 bytes", b"\0\3\0")
    raw("header only 8 bytes, no client id (Metadata v1)", struct.pack(">hhi", 3, 1, 5))
    raw("length -1", b"", -1)
    raw("length 100 MiB + 1", b"", 104857601)
    raw("length 100 MiB", b"", 104857600)
    raw("TLS hello", b"", 0x16030100)
    raw("HTTP", b" / HTTP/1.1\r\n\r\n", struct.unpack(">i", b"GET ")[0])


def cluster():
    for version in (0, 1, 2):
        show(f"DescribeCluster v{version}", attempt("DescribeCluster", version, {"IncludeClusterAuthorizedOperations": True}))
    show("DescribeCluster v1, endpoint type 2 on broker", attempt("DescribeCluster", 1, {"EndpointType": 2}))
    show("DescribeCluster v1, endpoint type 3", attempt("DescribeCluster", 1, {"EndpointType": 3}))
    show("DescribeCluster v0, no ops", attempt("DescribeCluster", 0, {}))
    show("DescribeCluster v2, fenced included", attempt("DescribeCluster", 2, {"IncludeFencedBrokers": True}))


def topic_partitions():
    for name in "abc":
        create(f"tp-{RUN}-{name}", 3)

    def ask(names, limit=2000, cursor=None):
        answer = attempt("DescribeTopicPartitions", 0, {"Topics": [{"Name": f"tp-{RUN}-{n}" if len(n) == 1 else n} for n in names], "ResponsePartitionLimit": limit, "Cursor": cursor})
        if isinstance(answer, str):
            return answer
        return {"Topics": [(t["Name"], t["ErrorCode"], [p["PartitionIndex"] for p in t["Partitions"]]) for t in answer["Topics"]], "NextCursor": answer["NextCursor"]}

    show("whole answer of one", attempt("DescribeTopicPartitions", 0, {"Topics": [{"Name": f"tp-{RUN}-a"}], "ResponsePartitionLimit": 2, "Cursor": None}))
    show("c, a, b", ask("cab"))
    show("a twice", ask("aa"))
    show("limit 4", ask("cab", 4))
    show("limit 3", ask("cab", 3))
    cur = lambda n, p: {"TopicName": f"tp-{RUN}-{n}", "PartitionIndex": p}
    show("limit 4, cursor b/1", ask("cab", 4, cur("b", 1)))
    show("cursor b/3 (past the end)", ask("cab", 4, cur("b", 3)))
    show("cursor b/-1", ask("cab", 4, cur("b", -1)))
    show("cursor to topic that was not asked", ask("ac", 4, cur("b", 0)))
    show("cursor to topic that does not exist", ask("ac", 4, cur("zz", 0)))
    show("limit 0", ask("cab", 0))
    show("limit -1", ask("cab", -1))
    show("limit 100000", ask("cab", 100000))
    create(f"tp-{RUN}-big", 2100)
    answer = ask([f"tp-{RUN}-big"], 100000)
    show("limit 100000, topic of 2100", [len(answer["Topics"][0][2]), answer["NextCursor"]])
    show("unknown topic", ask(["nope"]))
    show("unknown whole", attempt("DescribeTopicPartitions", 0, {"Topics": [{"Name": "nope"}], "ResponsePartitionLimit": 2, "Cursor": None}))
    show("bad name", ask(["a b"]))
    show("unknown and known, limit 1", ask(["nope", "a"], 1))
    answer = ask([])
    show("empty list: all topics", f"{len(answer['Topics'])} topics, sorted {[t[0] for t in answer['Topics']] == sorted(t[0] for t in answer['Topics'])}")
    show("empty list with cursor", ask([], 3, cur("b", 1)))


sections(topics, api_versions, frames, cluster, topic_partitions)
