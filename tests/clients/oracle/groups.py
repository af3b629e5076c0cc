"""Questions about classic groups and committed offsets.

BOOTSTRAP should be a broker with group.initial.rebalance.delay.ms=0; `delay` is for one with the default.
"""

import time

import wire
from probe import RUN, attempt, connect, create, sections, show

G = f"g-{RUN}"
NOW = int(time.time() * 1000)


def ready():
    """Answers only when the coordinator has loaded."""
    while attempt("FindCoordinator", 3, {"Key": "x", "KeyType": 0})["ErrorCode"] != 0:
        time.sleep(0.1)
    time.sleep(1)


class Member:
    """One group member on a connection of its own; requests may be left open."""

    def __init__(self, group, version=5, client_id="oracle"):
        self.c, self.group, self.version, self.client_id = connect(30), group, version, client_id
        self.id, self.generation = "", -1

    def join_body(self, member="", protocols=(("range", b"\0\1"),), kind="consumer", session=10000, rebalance=5000, instance=None, reason=None):
        body = {"GroupId": self.group, "SessionTimeoutMs": session, "MemberId": member, "ProtocolType": kind,
                "Protocols": [{"Name": n, "Metadata": m} for n, m in protocols]}
        if self.version >= 1:
            body["RebalanceTimeoutMs"] = rebalance
        if self.version >= 5:
            body["GroupInstanceId"] = instance
        if self.version >= 8:
            body["Reason"] = reason
        return body

    def join_send(self, **kw):
        self.c.send("JoinGroup", self.version, self.join_body(**kw), client_id=self.client_id)

    def join_read(self):
        answer = self.c.receive("JoinGroup", self.version)
        self.id, self.generation = answer["MemberId"], answer["GenerationId"]
        return answer

    def join(self, **kw):
        self.join_send(**kw)
        return self.join_read()

    def full_join(self, **kw):
        answer = self.join(**kw)
        if answer["ErrorCode"] == 79:
            answer = self.join(member=answer["MemberId"], **kw)
        return answer

    def sync_send(self, assignments=(), generation=None, member=None, version=3, **kw):
        body = {"GroupId": self.group, "GenerationId": self.generation if generation is None else generation, "MemberId": self.id if member is None else member,
                "Assignments": [{"MemberId": m, "Assignment": a} for m, a in assignments], **kw}
        self.c.send("SyncGroup", version, body)

    def sync(self, *a, version=3, **kw):
        self.sync_send(*a, version=version, **kw)
        return self.c.receive("SyncGroup", version)

    def heartbeat(self, generation=None, member=None, **kw):
        return self.c.ask("Heartbeat", 3, {"GroupId": self.group, "GenerationId": self.generation if generation is None else generation,
                                           "MemberId": self.id if member is None else member, **kw})


def joining():
    ready()
    for version in (0, 1, 3, 4, 5, 9):
        show(f"empty member id v{version}", Member(f"{G}-v{version}", version).join())
    m = Member(f"{G}-v4b", 4, client_id="cli-x")
    first = m.join()
    show("v4 first answer, client id cli-x", first)
    show("  again with that id", m.join(member=first["MemberId"]))
    show("unknown member id, new group", Member(f"{G}-u", 5).join(member="who"))
    show("unknown member id, existing group", Member(f"{G}-v4b", 5).join(member="who"))
    show("null client id", Member(f"{G}-nc", 3, client_id=None).join())
    show("empty client id", Member(f"{G}-ec", 3, client_id="").join())
    for t in (5999, 6000, 1_800_000, 1_800_001, 0, -1):
        show(f"session timeout {t}", Member(f"{G}-s{t}", 3).join(session=t))
    show("rebalance timeout -1", Member(f"{G}-r", 3).join(rebalance=-1))
    show("empty protocol type", Member(f"{G}-pt", 3).join(kind=""))
    show("no protocols", Member(f"{G}-np", 3).join(protocols=()))
    show("empty group id", Member("", 3).join())
    show("other protocol type, existing group", Member(f"{G}-v3", 3).join(kind="connect"))
    show("other protocols, existing group", Member(f"{G}-v3", 3).join(protocols=(("other", b""),)))
    show("empty protocol name", Member(f"{G}-pn", 3).join(protocols=(("", b""),)))
    twice = Member(f"{G}-p2", 3)
    twice.c.sock.settimeout(8)
    try:
        show("same protocol twice", twice.join(protocols=(("range", b"1"), ("range", b"2"))))
    except TimeoutError:
        show("same protocol twice", "(no answer in 8 s)")
    show("instance id v5", Member(f"{G}-i", 5).join(instance="inst-1"))
    show("instance id v9", Member(f"{G}-i9", 9).join(instance="inst-1"))
    show("bad instance id 'a b'", Member(f"{G}-ib", 5).join(instance="a b"))
    show("empty instance id", Member(f"{G}-ie", 5).join(instance=""))


def rebalancing():
    ready()
    g = f"{G}-reb"
    create(g)
    a = Member(g, 3)
    show("A joins", a.join(protocols=(("range", b"A"), ("roundrobin", b"a"))))
    show("A heartbeat before sync", a.heartbeat())
    show("A sync as leader, v3", a.sync([(a.id, b"all")]))
    show("A sync again", a.sync([(a.id, b"other")]))
    show("A heartbeat", a.heartbeat())
    show("A heartbeat wrong generation", a.heartbeat(generation=7))
    show("A heartbeat older generation", a.heartbeat(generation=0))
    show("heartbeat unknown member", a.heartbeat(member="who"))
    b = Member(g, 3)
    b.join_send(protocols=(("roundrobin", b"b"), ("sticky", b"x")))
    time.sleep(0.3)
    show("A heartbeat while B waits", a.heartbeat())
    show("A sync while rebalancing", a.sync())
    commit = lambda m: attempt("OffsetCommit", 7, {"GroupId": g, "GenerationIdOrMemberEpoch": m.generation, "MemberId": m.id, "Topics": [
        {"Name": g, "Partitions": [{"PartitionIndex": 0, "CommittedOffset": 1, "CommittedLeaderEpoch": -1, "CommittedMetadata": ""}]}]})
    show("A commits in PreparingRebalance", commit(a))
    show("A joins again", a.join(member=a.id, protocols=(("range", b"A"), ("roundrobin", b"a"))))
    show("B's answer", b.join_read())
    show("B commits in CompletingRebalance", commit(b))
    b.sync_send()
    time.sleep(0.2)
    show("B heartbeat from elsewhere while its sync waits", attempt("Heartbeat", 3, {"GroupId": g, "GenerationId": b.generation, "MemberId": b.id}))
    show("leader A sync: names only itself and a stranger", a.sync([(a.id, b"one"), ("stranger", b"x")]))
    show("B's sync answer (nothing for it)", b.c.receive("SyncGroup", 3))
    show("sync wrong generation", a.sync(generation=99))
    show("sync unknown member", a.sync(member="who"))
    show("sync v5 wrong protocol name", a.sync(version=5, ProtocolType="consumer", ProtocolName="range"))
    show("sync v5 wrong protocol type", a.sync(version=5, ProtocolType="connect", ProtocolName="roundrobin"))
    show("sync v5 null names", a.sync(version=5, ProtocolType=None, ProtocolName=None))
    show("follower B rejoins with same metadata (stable)", b.join(member=b.id, protocols=(("roundrobin", b"b"), ("sticky", b"x"))))
    show("  A heartbeat", a.heartbeat())
    b.join_send(member=b.id, protocols=(("roundrobin", b"B2"),))
    time.sleep(0.3)
    show("B rejoins with other metadata: A heartbeat", a.heartbeat())
    started = time.time()
    answer = b.join_read()
    show(f"A never rejoins (rebalance timeout 5 s): B answered after {time.time() - started + 0.3:.0f} s", answer)
    show("A heartbeat afterwards", a.heartbeat())
    show("Leave B v3 batch: B, unknown, unknown instance", attempt("LeaveGroup", 3, {"GroupId": g, "Members": [{"MemberId": b.id}, {"MemberId": "who"}, {"MemberId": "", "GroupInstanceId": "none"}]}))
    show("Leave unknown v2", attempt("LeaveGroup", 2, {"GroupId": g, "MemberId": "who"}))
    show("Leave unknown group v3", attempt("LeaveGroup", 3, {"GroupId": g + "nope", "Members": [{"MemberId": "who"}]}))
    show("Leave with no members v3", attempt("LeaveGroup", 3, {"GroupId": g, "Members": []}))
    show("heartbeat unknown group", attempt("Heartbeat", 3, {"GroupId": g + "nope", "GenerationId": 1, "MemberId": "who"}))
    show("sync unknown group", attempt("SyncGroup", 3, {"GroupId": g + "nope", "GenerationId": 1, "MemberId": "who"}))
    c = Member(g, 3)
    show("C joins emptied group: generation goes on", c.join())
    c.sync([(c.id, b"")])
    d = Member(g, 3)
    d.join_send()
    time.sleep(0.2)
    show("C leaves while D waits", attempt("LeaveGroup", 3, {"GroupId": g, "Members": [{"MemberId": c.id}]}))
    show("D's answer", d.join_read())
    e = Member(f"{G}-exp", 3)
    e.join(session=6000)
    e.sync([(e.id, b"")])
    f = Member(f"{G}-exp", 3)
    f.join_send(rebalance=60000)
    started = time.time()
    answer = f.join_read()
    show(f"E silent (session 6 s, rebalance 5 s / F 60 s): F answered after {time.time() - started:.0f} s", answer)
    p = Member(f"{G}-pend", 4)
    pending = p.join(session=6000)["MemberId"]
    time.sleep(7)
    show("id from MEMBER_ID_REQUIRED used after the session timeout (6 s)", p.join(member=pending, session=6000))
    p = Member(f"{G}-pend2", 4)
    p.full_join(session=6000)
    p.sync([(p.id, b"")])
    q = Member(f"{G}-pend2", 3)
    q.join_send(session=6000, rebalance=20000)
    for _ in range(4):
        time.sleep(2)
        answer = p.heartbeat()
    show("waiting join of 8 s with session timeout 6 s, other heartbeats meanwhile: its heartbeat", answer)
    p.join(member=p.id, session=6000)
    show("  and the waiting one's answer", q.join_read())
    l = Member(f"{G}-lead", 3)
    m = Member(f"{G}-lead", 3)
    l.join()
    show("leader rejoins with same metadata, CompletingRebalance", l.join(member=l.id))
    l.sync([(l.id, b"")])
    l.join_send(member=l.id)
    show("leader rejoins with same metadata, Stable, alone", l.join_read())
    l.sync([(l.id, b"")])
    m.join_send()
    time.sleep(0.2)
    l.join(member=l.id)
    m.join_read()
    m.sync_send()
    l.sync([(l.id, b"")])
    m.c.receive("SyncGroup", 3)
    l.join_send(member=l.id)
    time.sleep(0.3)
    show("leader rejoins with same metadata, Stable, two members: follower heartbeat", m.heartbeat())
    m.join(member=m.id)
    l.join_read()
    attempt("LeaveGroup", 3, {"GroupId": l.group, "Members": [{"MemberId": l.id}, {"MemberId": m.id}]})
    show("emptied group joined with another protocol type", Member(l.group, 3).join(kind="connect"))
    p = Member(f"{G}-pending", 4)
    p.id = p.join()["MemberId"]
    show("pending member id: heartbeat, sync, leave", [p.heartbeat(generation=-1), p.sync(generation=-1),
         attempt("LeaveGroup", 3, {"GroupId": p.group, "Members": [{"MemberId": p.id}]})])
    show("  group with only pending members, described / deleted", [attempt("DescribeGroups", 5, {"Groups": [p.group]}), attempt("DeleteGroups", 2, {"GroupsNames": [p.group]})])
    n = Member(f"{G}-nosync", 3)
    o = Member(f"{G}-nosync", 3)
    n.join()
    n.sync([(n.id, b"")])
    o.join_send(rebalance=3000)
    time.sleep(0.1)
    n.join(member=n.id, rebalance=3000)
    o.join_read()
    o.sync_send()
    started = time.time()
    show("leader never syncs: follower's sync answer", o.c.receive("SyncGroup", 3))
    show(f"  after {time.time() - started:.0f} s", None)
    show("  leader heartbeat / follower heartbeat", [n.heartbeat(), o.heartbeat()])


def assignors():
    ready()
    g = f"{G}-as"
    a, b, c = Member(g, 3), Member(g, 3), Member(g, 3)
    a.join(protocols=(("range", b""), ("sticky", b"")))
    b.join_send(protocols=(("sticky", b""), ("range", b"")))
    c.join_send(protocols=(("sticky", b""), ("range", b"")))
    time.sleep(0.3)
    answer = a.join(member=a.id, protocols=(("range", b""), ("sticky", b"")))
    show("votes: A range,sticky; B and C sticky,range", answer["ProtocolName"])
    show("leader is A (first) and its member order", [answer["Leader"] == a.id, [m["MemberId"] for m in answer["Members"]]])
    show("B sees members", b.join_read()["Members"])
    c.join_read()
    g2 = f"{G}-tie"
    a, b = Member(g2, 3), Member(g2, 3)
    a.join(protocols=(("range", b""), ("sticky", b"")))
    b.join_send(protocols=(("sticky", b""), ("range", b"")))
    time.sleep(0.3)
    show("tie: A range,sticky; B sticky,range", a.join(member=a.id, protocols=(("range", b""), ("sticky", b"")))["ProtocolName"])


def static():
    ready()
    g = f"{G}-st"
    a = Member(g, 5)
    show("A joins as inst-1", a.join(instance="inst-1"))
    show("A syncs", a.sync([(a.id, b"mine")], GroupInstanceId="inst-1"))
    b = Member(g, 5)
    show("B joins with same instance, same metadata", b.join(instance="inst-1"))
    show("B syncs", b.sync([(b.id, b"ignored")], GroupInstanceId="inst-1"))
    show("A heartbeat with instance", a.heartbeat(GroupInstanceId="inst-1"))
    show("A heartbeat without instance", a.heartbeat())
    show("A commit with instance", attempt("OffsetCommit", 7, {"GroupId": g, "GenerationIdOrMemberEpoch": a.generation, "MemberId": a.id, "GroupInstanceId": "inst-1", "Topics": []}))
    show("A rejoin with its old id", a.join(member=a.id, instance="inst-1"))
    show("wrong instance, right member", b.heartbeat(GroupInstanceId="inst-2"))
    c = Member(g, 9)
    show("C (v9) joins with same instance: leader, skip assignment", c.join(instance="inst-1"))
    d = Member(g, 5)
    d.join_send(instance="inst-2")
    time.sleep(0.3)
    show("C heartbeat as D inst-2 comes", c.heartbeat(GroupInstanceId="inst-1"))
    show("C rejoins", c.join(member=c.id, instance="inst-1"))
    show("D's answer", d.join_read())
    show("C sync", c.sync([(c.id, b"1"), (d.id, b"2")], GroupInstanceId="inst-1"))
    show("D sync", d.sync(GroupInstanceId="inst-2"))
    e = Member(g, 5)
    show("E takes inst-2 with other metadata", None)
    e.join_send(instance="inst-2", protocols=(("range", b"zzz"),))
    time.sleep(0.3)
    show("  C heartbeat", c.heartbeat(GroupInstanceId="inst-1"))
    show("leave by instance with empty member id v3", attempt("LeaveGroup", 3, {"GroupId": g, "Members": [{"MemberId": "", "GroupInstanceId": "inst-1"}]}))
    show("  E's answer", e.join_read())
    show("leave by instance with wrong member id", attempt("LeaveGroup", 3, {"GroupId": g, "Members": [{"MemberId": "who", "GroupInstanceId": "inst-2"}]}))
    show("describe", attempt("DescribeGroups", 5, {"Groups": [g]}))


def offsets():
    ready()
    topic = f"{G}-t"
    topic_id = create(topic, 2)
    g = f"{G}-off"
    body = lambda offset=5, partition=0, name=topic, meta="m", group=g, generation=-1, member="", epoch=-1: {
        "GroupId": group, "GenerationIdOrMemberEpoch": generation, "MemberId": member, "Topics": [
            {"Name": name, "Partitions": [{"PartitionIndex": partition, "CommittedOffset": offset, "CommittedLeaderEpoch": epoch, "CommittedMetadata": meta}]}]}
    commit = lambda **kw: attempt("OffsetCommit", 7, body(**kw))
    show("generation -1, new group", commit())
    show("unknown topic", commit(name="nope"))
    show("unknown partition 9", commit(partition=9))
    show("negative partition", commit(partition=-1))
    show("negative offset", commit(offset=-5))
    show("beyond the end (topic is empty)", commit(offset=10**12))
    show("metadata 4096", commit(meta="x" * 4096))
    show("metadata 4097", commit(meta="x" * 4097))
    show("metadata null", commit(meta=None))
    show("empty group id", commit(group=""))
    show("generation 5 with member, unknown group", commit(generation=5, member="who", group=g + "new"))
    show("generation 5, group without members", commit(generation=5, member="who"))
    show("generation -1 with member id", commit(generation=-1, member="who"))
    show("leader epoch 3 committed", commit(epoch=3, partition=1))
    show("no topics", attempt("OffsetCommit", 7, {"GroupId": g, "GenerationIdOrMemberEpoch": -1, "MemberId": "", "Topics": []}))
    show("v2 with retention", attempt("OffsetCommit", 2, {"GroupId": g, "GenerationIdOrMemberEpoch": -1, "MemberId": "", "RetentionTimeMs": 1, "Topics": [
        {"Name": topic, "Partitions": [{"PartitionIndex": 0, "CommittedOffset": 6, "CommittedMetadata": ""}]}]}))
    show("v10 by id", attempt("OffsetCommit", 10, {"GroupId": g, "GenerationIdOrMemberEpoch": -1, "MemberId": "", "Topics": [
        {"TopicId": topic_id, "Partitions": [{"PartitionIndex": 0, "CommittedOffset": 7, "CommittedLeaderEpoch": -1, "CommittedMetadata": ""}]}]}))
    show("v10 unknown id", attempt("OffsetCommit", 10, {"GroupId": g, "GenerationIdOrMemberEpoch": -1, "MemberId": "", "Topics": [
        {"TopicId": "11111111-1111-1111-1111-111111111111", "Partitions": [{"PartitionIndex": 0, "CommittedOffset": 7, "CommittedLeaderEpoch": -1, "CommittedMetadata": ""}]}]}))

    def read(version=7, group=g, topics=((topic, (0, 1)),), **kw):
        wanted = None if topics is None else [{"Name": n, "PartitionIndexes": list(p)} for n, p in topics]
        if version >= 8:
            return attempt("OffsetFetch", version, {"Groups": [{"GroupId": group, "Topics": wanted}], **kw})
        return attempt("OffsetFetch", version, {"GroupId": group, "Topics": wanted, **kw})

    show("fetch v7", read())
    show("fetch v1", read(1))
    show("fetch v5", read(5))
    show("fetch all v7 (null)", read(topics=None))
    show("fetch all v1 (null)", attempt("OffsetFetch", 1, raw=wire.Codec(wire.SCHEMAS["OffsetFetchRequest"]).encode({"GroupId": g, "Topics": []}, 1)[:-4] + b"\xff\xff\xff\xff"))
    show("fetch empty list v7", read(topics=()))
    show("unknown topic and partition", read(topics=(("nope", (0,)), (topic, (9,)))))
    show("unknown group v7", read(group=g + "nope"))
    show("unknown group v7, all", read(group=g + "nope", topics=None))
    show("v8 two groups", attempt("OffsetFetch", 8, {"Groups": [{"GroupId": g, "Topics": None}, {"GroupId": g + "nope", "Topics": [{"Name": topic, "PartitionIndexes": [0]}]}]}))
    show("v8 empty group id", read(8, group=""))
    show("v9 with member epoch -1", attempt("OffsetFetch", 9, {"Groups": [{"GroupId": g, "MemberId": None, "MemberEpoch": -1, "Topics": None}], "RequireStable": True}))
    show("v9 with unknown member, epoch 5", attempt("OffsetFetch", 9, {"Groups": [{"GroupId": g, "MemberId": "who", "MemberEpoch": 5, "Topics": None}]}))
    show("v10 all", attempt("OffsetFetch", 10, {"Groups": [{"GroupId": g, "Topics": None}]}))
    show("v10 unknown id", attempt("OffsetFetch", 10, {"Groups": [{"GroupId": g, "Topics": [{"TopicId": "11111111-1111-1111-1111-111111111111", "PartitionIndexes": [0]}]}]}))
    show("require stable v7", read(RequireStable=True))

    a = Member(f"{G}-act", 3)
    a.join(protocols=(("range", b"\0\0\0\0\0\1" + len(topic).to_bytes(2, "big") + topic.encode() + b"\xff\xff\xff\xff"),))
    a.sync([(a.id, b"")])
    act = dict(group=a.group)
    show("active group: generation -1, empty member", commit(**act))
    show("active group: right", commit(generation=a.generation, member=a.id, **act))
    show("active group: wrong generation", commit(generation=a.generation + 1, member=a.id, **act))
    show("active group: older generation", commit(generation=0, member=a.id, **act))
    show("active group: unknown member", commit(generation=a.generation, member="who", **act))
    show("active group: generation -1, right member", commit(generation=-1, member=a.id, **act))

    delete = lambda group, name=topic, partition=0: attempt("OffsetDelete", 0, {"GroupId": group, "Topics": [{"Name": name, "Partitions": [{"PartitionIndex": partition}]}]})
    show("OffsetDelete subscribed topic", delete(a.group))
    show("OffsetDelete other topic of active group", delete(a.group, "other"))
    show("OffsetDelete empty group", delete(g))
    show("OffsetDelete again", delete(g))
    show("OffsetDelete unknown topic", delete(g, "nope"))
    show("OffsetDelete unknown partition", delete(g, topic, 9))
    show("OffsetDelete unknown group", delete(g + "nope"))
    show("OffsetDelete empty group id", delete(""))
    show("  after", read())
    show("DeleteGroups active, empty, unknown, '' v3", attempt("DeleteGroups", 3, {"GroupsNames": [a.group, g, g + "nope", ""]}))
    show("DeleteGroups v2", attempt("DeleteGroups", 2, {"GroupsNames": [a.group, g]}))
    show("DeleteGroups same twice", attempt("DeleteGroups", 2, {"GroupsNames": [a.group, a.group]}))
    show("  fetch after delete", read())


def describing():
    ready()
    g = f"{G}-desc"
    a = Member(g, 3)
    a.join(protocols=(("range", b"meta"), ("sticky", b"m2")))
    show("CompletingRebalance v5", attempt("DescribeGroups", 5, {"Groups": [g]}))
    a.sync([(a.id, b"assigned")])
    show("Stable v5", attempt("DescribeGroups", 5, {"Groups": [g], "IncludeAuthorizedOperations": True}))
    show("v0", attempt("DescribeGroups", 0, {"Groups": [g]}))
    b = Member(g, 3)
    b.join_send(protocols=(("range", b"b"),))
    time.sleep(0.3)
    show("PreparingRebalance v5", attempt("DescribeGroups", 5, {"Groups": [g]}))
    for version in (0, 4, 5, 6):
        show(f"unknown v{version}", attempt("DescribeGroups", version, {"Groups": [g + "nope"]}))
    show("empty id", attempt("DescribeGroups", 5, {"Groups": [""]}))
    show("same twice", len(attempt("DescribeGroups", 5, {"Groups": [g, g]})["Groups"]))
    attempt("OffsetCommit", 7, {"GroupId": g + "e", "GenerationIdOrMemberEpoch": -1, "MemberId": "", "Topics": [{"Name": "nope", "Partitions": []}]})
    show("after refused commit: described", attempt("DescribeGroups", 5, {"Groups": [g + "e"]}))
    topic = f"{G}-dt"
    create(topic)
    attempt("OffsetCommit", 7, {"GroupId": g + "s", "GenerationIdOrMemberEpoch": -1, "MemberId": "", "Topics": [
        {"Name": topic, "Partitions": [{"PartitionIndex": 0, "CommittedOffset": 1, "CommittedLeaderEpoch": -1, "CommittedMetadata": ""}]}]})
    show("simple group (only commits) described", attempt("DescribeGroups", 5, {"Groups": [g + "s"]}))
    mine = lambda version, **kw: [x for x in attempt("ListGroups", version, kw)["Groups"] if x["GroupId"].startswith(g)]
    show("ListGroups v0", mine(0))
    show("ListGroups v4", mine(4))
    show("ListGroups v5", mine(5))
    show("  states [empty] (small letters)", mine(5, StatesFilter=["empty"]))
    show("  states [Empty]", mine(5, StatesFilter=["Empty"]))
    show("  states [Nonsense]", attempt("ListGroups", 5, {"StatesFilter": ["Nonsense"]}))
    show("  types [classic]", len(mine(5, TypesFilter=["classic"])))
    show("  types [Classic]", len(mine(5, TypesFilter=["Classic"])))
    show("  types [consumer]", len(mine(5, TypesFilter=["consumer"])))
    show("  types [nonsense]", attempt("ListGroups", 5, {"TypesFilter": ["nonsense"]}))


def coordinators():
    ready()
    for version in range(4):
        show(f"v{version}", attempt("FindCoordinator", version, {"Key": "x", "KeyType": 0} if version else {"Key": "x"}))
    for version in (4, 5, 6):
        show(f"v{version} two keys", attempt("FindCoordinator", version, {"KeyType": 0, "CoordinatorKeys": ["x", "y"]}))
    show("v2 empty key", attempt("FindCoordinator", 2, {"Key": "", "KeyType": 0}))
    show("v4 empty key", attempt("FindCoordinator", 4, {"KeyType": 0, "CoordinatorKeys": [""]}))
    show("v4 no keys", attempt("FindCoordinator", 4, {"KeyType": 0, "CoordinatorKeys": []}))
    show("v4 same key twice", attempt("FindCoordinator", 4, {"KeyType": 0, "CoordinatorKeys": ["x", "x"]}))
    show("v2 txn", attempt("FindCoordinator", 2, {"Key": "x", "KeyType": 1}))
    show("v2 empty txn", attempt("FindCoordinator", 2, {"Key": "", "KeyType": 1}))
    show("v2 key type 2", attempt("FindCoordinator", 2, {"Key": "x", "KeyType": 2}))
    show("v4 key type 2", attempt("FindCoordinator", 4, {"KeyType": 2, "CoordinatorKeys": ["x"]}))
    show("v6 key type 2, bad key", attempt("FindCoordinator", 6, {"KeyType": 2, "CoordinatorKeys": ["x"]}))
    show("v2 key type 9", attempt("FindCoordinator", 2, {"Key": "x", "KeyType": 9}))
    show("v4 key type 9", attempt("FindCoordinator", 4, {"KeyType": 9, "CoordinatorKeys": ["x"]}))


def retention():
    """For a broker with offsets.retention.check.interval.ms=1000."""
    ready()
    create(G)
    for version, group in ((2, G + "-v2"), (7, G + "-v7")):
        partition = {"PartitionIndex": 0, "CommittedOffset": 6, "CommittedMetadata": ""} | ({"CommittedLeaderEpoch": -1} if version >= 6 else {})
        body = {"GroupId": group, "GenerationIdOrMemberEpoch": -1, "MemberId": "", "Topics": [{"Name": G, "Partitions": [partition]}]}
        attempt("OffsetCommit", version, body | ({"RetentionTimeMs": 1} if version == 2 else {}))
    time.sleep(4)
    for group in (G + "-v2", G + "-v7"):
        show(f"{group} after 4 s", attempt("OffsetFetch", 7, {"GroupId": group, "Topics": None})["Topics"])
    show("v2 group described", attempt("DescribeGroups", 6, {"Groups": [G + "-v2"]}))


def delay():
    ready()
    g = f"{G}-delay"
    a, b = Member(g, 3), Member(g, 3)
    started = time.time()
    a.join_send()
    time.sleep(1)
    b.join_send()
    first = a.join_read()
    show(f"first join answered after {time.time() - started:.1f} s with {len(first['Members'])} members, generation {first['GenerationId']}", None)
    c = Member(g + "1", 3)
    started = time.time()
    c.join()
    show(f"alone: {time.time() - started:.1f} s", None)
    show("rebalance timeout 1 s, alone", None)
    d = Member(g + "2", 3)
    started = time.time()
    d.join(rebalance=1000)
    show(f"  {time.time() - started:.1f} s", None)


sections(joining, rebalancing, assignors, static, offsets, describing, coordinators, retention, delay)
