"""A full cycle of SQS through a botocore client, whichever encoding that botocore speaks.

What is asserted is what AWS documents or answered when it was recorded; `SQS` is the endpoint under test. With
`SQS_SIGNED`, an endpoint that has the access key `SQS_KEY_ID` with `SQS_SECRET` configured, signatures are tested too.
"""

import hashlib
import json
import os
import struct
import threading
import time
import urllib.error
import urllib.request
from urllib.parse import urlsplit

from botocore.exceptions import ClientError

from steps import RUN, step, until

ENDPOINT = os.environ["SQS"]
# AWS's texts, of which clients are known to look for parts.
NO_QUEUE = "The specified queue does not exist"


def md5_of_attributes(attributes):
    """As AWS documents it: sorted by name, each part with its length, the kind of value as one byte."""
    digest = hashlib.md5()

    def part(data):
        digest.update(struct.pack(">I", len(data)) + data)

    for name, value in sorted(attributes.items()):
        part(name.encode())
        part(value["DataType"].encode())
        is_binary = value["DataType"].startswith("Binary")
        digest.update(b"\2" if is_binary else b"\1")
        part(value["BinaryValue"] if is_binary else value["StringValue"].encode())
    return digest.hexdigest()


class Cycle:
    """`client(**options)` makes a client with other options than the usual; `speaks_json` tells its encoding."""

    def __init__(self, client, prefix, speaks_json):
        self.make, self.sqs, self.speaks_json = client, client(), speaks_json
        self.prefix = f"{prefix}-{RUN}"

    # What the steps are made of.

    def queue(self, name, **attributes):
        ending = ".fifo" if "FifoQueue" in attributes else ""
        return self.sqs.create_queue(QueueName=f"{self.prefix}-{name}{ending}", Attributes=attributes)["QueueUrl"]

    def fifo_queue(self, name, **attributes):
        return self.queue(name, FifoQueue="true", **attributes)

    def arn(self, url):
        return self.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]

    def count(self, url, which="ApproximateNumberOfMessages"):
        return int(self.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=[which])["Attributes"][which])

    def receive(self, url, most=1, wait=5, **options):
        # AttributeNames is the discontinued name of what old clients have only, and servers still honour.
        answer = self.sqs.receive_message(
            QueueUrl=url, MaxNumberOfMessages=most, WaitTimeSeconds=wait, AttributeNames=["All"], MessageAttributeNames=["All"], **options)
        for message in answer.get("Messages", []):
            assert message["MD5OfBody"] == hashlib.md5(message["Body"].encode()).hexdigest(), message
        return answer.get("Messages", [])

    def drain(self, url, number):
        """Receives and deletes exactly so many; their bodies in the order in which they came."""
        bodies = []
        while len(bodies) < number:
            messages = self.receive(url, 10)
            assert messages, f"{bodies}, and nothing more within 5 s"
            for message in messages:
                bodies.append(message["Body"])
                self.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        return bodies

    def refused(self, shape, legacy, status, text, call, **arguments):
        """The call must fail with both names of the error, the modelled exception, the status and the text."""
        try:
            answer = call(**arguments)
        except ClientError as error:
            found, http = error.response["Error"], error.response["ResponseMetadata"]["HTTPStatusCode"]
            assert (found["Code"], http) == (legacy, status) and text in found["Message"], (found, http)
            if self.speaks_json and legacy != shape:
                assert found["QueryErrorCode"] == shape, found
            modelled = getattr(self.sqs.exceptions, shape, None) if shape in dir(self.sqs.exceptions) else None
            assert modelled is None or isinstance(error, modelled), f"{type(error).__name__}, not {shape}"
            return
        raise AssertionError(f"not refused: {answer}")

    def invalid(self, text, call, **arguments):
        """Refused by an error that AWS does not model."""
        self.refused("InvalidParameterValue", "InvalidParameterValue", 400, text, call, **arguments)

    # The steps.

    def run(self):
        for name, body in [
                ("create", self.create), ("list", self.list), ("attributes", self.attributes), ("tags", self.tags),
                ("permissions", self.permissions), ("message", self.message), ("message-attributes", self.message_attributes),
                ("batch", self.batch), ("delay", self.delay), ("visibility", self.visibility), ("stale-handle", self.stale_handle),
                ("long-poll", self.long_poll), ("fifo", self.fifo), ("fifo-dedup", self.fifo_dedup),
                ("attempt-id", self.attempt_id), ("dead-letters", self.dead_letters), ("move-task", self.move_task),
                ("purge", self.purge), ("errors", self.errors), ("address", self.address), ("delete-queue", self.delete_queue)]:
            with step(name) as s:
                s.detail = body() or ""
        if "SQS_SIGNED" in os.environ:
            with step("signatures") as s:
                s.detail = self.signatures()

    def create(self):
        name = f"{self.prefix}-main"
        made = self.sqs.create_queue(QueueName=name, Attributes={"VisibilityTimeout": "30"}, tags={"team": "barges"})
        self.main = made["QueueUrl"]
        assert urlsplit(self.main).path.rsplit("/")[-1] == name, made
        again = self.sqs.create_queue(QueueName=name, Attributes={"VisibilityTimeout": "30"})
        assert again["QueueUrl"] == self.main, again
        self.refused("QueueNameExists", "QueueAlreadyExists", 400, "already exists", self.sqs.create_queue,
                     QueueName=name, Attributes={"VisibilityTimeout": "31"})
        self.ordered = self.fifo_queue("main", ContentBasedDeduplication="true")
        self.invalid("", self.sqs.create_queue, QueueName=f"{self.prefix}-wrong", Attributes={"FifoQueue": "true"})
        self.invalid("", self.sqs.create_queue, QueueName=f"{self.prefix} wrong")
        return "standard and FIFO"

    def list(self):
        urls = {self.main, self.ordered}
        assert set(self.sqs.list_queues(QueueNamePrefix=self.prefix)["QueueUrls"]) == urls
        page = self.sqs.list_queues(QueueNamePrefix=self.prefix, MaxResults=1)
        rest = self.sqs.list_queues(QueueNamePrefix=self.prefix, MaxResults=1, NextToken=page["NextToken"])
        assert {*page["QueueUrls"], *rest["QueueUrls"]} == urls and len(page["QueueUrls"]) == 1, (page, rest)
        assert "QueueUrls" not in self.sqs.list_queues(QueueNamePrefix=f"{self.prefix}-none")
        assert self.sqs.get_queue_url(QueueName=f"{self.prefix}-main")["QueueUrl"] == self.main
        return "by prefix, by page, by name"

    def attributes(self):
        def get(url, *names):
            return self.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=[*names]).get("Attributes", {})

        every = get(self.main, "All")
        usual = {"VisibilityTimeout": "30", "DelaySeconds": "0", "ReceiveMessageWaitTimeSeconds": "0",
                 "MessageRetentionPeriod": "345600", "MaximumMessageSize": "1048576", "ApproximateNumberOfMessages": "0",
                 "ApproximateNumberOfMessagesNotVisible": "0", "ApproximateNumberOfMessagesDelayed": "0"}
        assert usual.items() <= every.items(), every
        assert "FifoQueue" not in every and every["QueueArn"].endswith(f":{self.prefix}-main"), every
        assert abs(int(every["CreatedTimestamp"]) - time.time()) < 60, every
        assert {"FifoQueue": "true", "ContentBasedDeduplication": "true"}.items() <= get(self.ordered, "All").items()
        changes = {"VisibilityTimeout": "45", "MessageRetentionPeriod": "3600", "ReceiveMessageWaitTimeSeconds": "1"}
        self.sqs.set_queue_attributes(QueueUrl=self.main, Attributes=changes)
        assert get(self.main, *changes) == changes
        self.refused("InvalidAttributeName", "InvalidAttributeName", 400, "Unknown Attribute", self.sqs.get_queue_attributes,
                     QueueUrl=self.main, AttributeNames=["Colour"])
        self.refused("InvalidAttributeValue", "InvalidAttributeValue", 400, "VisibilityTimeout", self.sqs.set_queue_attributes,
                     QueueUrl=self.main, Attributes={"VisibilityTimeout": "43201"})
        return f"{len(every)} of a standard queue"

    def tags(self):
        def tags():
            return self.sqs.list_queue_tags(QueueUrl=self.main).get("Tags", {})

        assert tags() == {"team": "barges"}
        self.sqs.tag_queue(QueueUrl=self.main, Tags={"team": "locks", "cost": "7 €"})
        assert tags() == {"team": "locks", "cost": "7 €"}
        self.sqs.untag_queue(QueueUrl=self.main, TagKeys=["team", "cost"])
        assert tags() == {}

    def permissions(self):
        allow = {"QueueUrl": self.main, "Label": "share", "AWSAccountIds": ["123456789012"], "Actions": ["SendMessage"]}
        self.sqs.add_permission(**allow)
        policy = self.sqs.get_queue_attributes(QueueUrl=self.main, AttributeNames=["Policy"])["Attributes"]["Policy"]
        assert [s["Sid"] for s in json.loads(policy)["Statement"]] == ["share"], policy
        self.invalid("Already exists", self.sqs.add_permission, **allow)
        self.sqs.remove_permission(QueueUrl=self.main, Label="share")

    def message(self):
        body = "täglich \U0001f6a2 <&>\r\n\t" + "x" * 70_000
        sent = self.sqs.send_message(QueueUrl=self.main, MessageBody=body)
        assert sent["MD5OfMessageBody"] == hashlib.md5(body.encode()).hexdigest() and "MD5OfMessageAttributes" not in sent, sent
        [message] = self.receive(self.main)
        attributes = message["Attributes"]
        assert (message["MessageId"], message["Body"]) == (sent["MessageId"], body), message["MessageId"]
        assert attributes["ApproximateReceiveCount"] == "1" and attributes["SenderId"], attributes
        for moment in ["SentTimestamp", "ApproximateFirstReceiveTimestamp"]:
            assert abs(int(attributes[moment]) / 1000 - time.time()) < 30, attributes
        assert self.count(self.main, "ApproximateNumberOfMessagesNotVisible") == 1
        for _ in range(2):
            self.sqs.delete_message(QueueUrl=self.main, ReceiptHandle=message["ReceiptHandle"])
        assert self.count(self.main, "ApproximateNumberOfMessagesNotVisible") == 0
        assert "Messages" not in self.sqs.receive_message(QueueUrl=self.main, WaitTimeSeconds=0)
        return f"{len(body.encode())} bytes"

    def message_attributes(self):
        attributes = {
            "text": {"DataType": "String", "StringValue": "gelb ✓"},
            "number": {"DataType": "Number", "StringValue": "-12.50"},
            "bytes": {"DataType": "Binary", "BinaryValue": bytes(range(256))},
            "of.own.kind": {"DataType": "Number.java.lang.Long", "StringValue": "7"},
            "of.own.picture": {"DataType": "Binary.png", "BinaryValue": b"\x89PNG"}}
        system = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1-5759e988-bd862e3fe1be46a994272793"}}
        sent = self.sqs.send_message(QueueUrl=self.main, MessageBody="b", MessageAttributes=attributes, MessageSystemAttributes=system)
        assert sent["MD5OfMessageAttributes"] == md5_of_attributes(attributes), sent
        assert sent["MD5OfMessageSystemAttributes"] == md5_of_attributes(system), sent
        answer = self.sqs.receive_message(QueueUrl=self.main, MessageAttributeNames=["text", "of.own.*"], VisibilityTimeout=0)
        [some] = answer["Messages"]
        wanted = {name: value for name, value in attributes.items() if name == "text" or name.startswith("of.own.")}
        assert some["MessageAttributes"] == wanted and some["MD5OfMessageAttributes"] == md5_of_attributes(wanted), some
        assert "Attributes" not in some, some
        [message] = self.receive(self.main)
        assert message["MessageAttributes"] == attributes, message
        assert message["MD5OfMessageAttributes"] == md5_of_attributes(attributes), message
        assert message["Attributes"]["AWSTraceHeader"] == system["AWSTraceHeader"]["StringValue"], message
        self.sqs.delete_message(QueueUrl=self.main, ReceiptHandle=message["ReceiptHandle"])
        self.invalid("", self.sqs.send_message, QueueUrl=self.main, MessageBody="b",
                     MessageAttributes={"AWS.mine": {"DataType": "String", "StringValue": "x"}})
        return "five types, all and filtered"

    def batch(self):
        entries = [{"Id": f"n{i}", "MessageBody": f"batch {i}"} for i in range(10)]
        entries[3]["DelaySeconds"] = 901
        entries[4]["MessageAttributes"] = {"a": {"DataType": "String", "StringValue": "b"}}
        sent = self.sqs.send_message_batch(QueueUrl=self.main, Entries=entries)
        assert [e["Id"] for e in sent["Successful"]] == [f"n{i}" for i in range(10) if i != 3], sent
        assert sent["Successful"][3]["MD5OfMessageAttributes"] == md5_of_attributes(entries[4]["MessageAttributes"]), sent
        [failed] = sent["Failed"]
        assert (failed["Id"], failed["Code"], failed["SenderFault"]) == ("n3", "InvalidParameterValue", True), failed
        handles = {}
        while len(handles) < 9:
            messages = self.receive(self.main, 10)
            assert messages, f"{len(handles)} of 9 messages"
            handles.update((m["Body"], m["ReceiptHandle"]) for m in messages)
        handles = list(handles.values())
        changes = [{"Id": f"c{i}", "ReceiptHandle": h, "VisibilityTimeout": 60 if i else 43201} for i, h in enumerate(handles)]
        changed = self.sqs.change_message_visibility_batch(QueueUrl=self.main, Entries=changes)
        assert len(changed["Successful"]) == 8 and [f["Id"] for f in changed["Failed"]] == ["c0"], changed
        gone = [{"Id": f"d{i}", "ReceiptHandle": h} for i, h in enumerate(handles + ["no handle"])]
        deleted = self.sqs.delete_message_batch(QueueUrl=self.main, Entries=gone)
        assert len(deleted["Successful"]) == 9, deleted
        assert [(f["Id"], f["Code"]) for f in deleted["Failed"]] == [("d9", "ReceiptHandleIsInvalid")], deleted

        def refused(shape, entries):
            self.refused(shape, f"AWS.SimpleQueueService.{shape}", 400, "", self.sqs.send_message_batch, QueueUrl=self.main, Entries=entries)

        refused("TooManyEntriesInBatchRequest", [{"Id": f"{i}", "MessageBody": "b"} for i in range(11)])
        refused("BatchEntryIdsNotDistinct", [{"Id": "same", "MessageBody": "b"}] * 2)
        refused("InvalidBatchEntryId", [{"Id": "not good", "MessageBody": "b"}])
        refused("EmptyBatchRequest", [])
        refused("BatchRequestTooLong", [{"Id": f"{i}", "MessageBody": "b" * 400_000} for i in range(3)])
        return "9 of 10 sent, 8 of 9 kept, 9 of 10 deleted"

    def delay(self):
        sent = time.time()
        self.sqs.send_message(QueueUrl=self.main, MessageBody="later", DelaySeconds=1)
        assert self.count(self.main, "ApproximateNumberOfMessagesDelayed") == 1
        [message] = self.receive(self.main)
        took = time.time() - sent
        assert message["Body"] == "later" and 1 <= took < 5, took
        self.sqs.delete_message(QueueUrl=self.main, ReceiptHandle=message["ReceiptHandle"])
        return f"came after {took:.1f} s"

    def visibility(self):
        sent = self.sqs.send_message(QueueUrl=self.main, MessageBody="again")
        begin = time.time()
        [first] = self.receive(self.main, VisibilityTimeout=1)
        [second] = self.receive(self.main)
        took = time.time() - begin
        assert second["MessageId"] == sent["MessageId"] and 1 <= took < 5, took
        assert second["Attributes"]["ApproximateReceiveCount"] == "2", second
        assert second["ReceiptHandle"] != first["ReceiptHandle"]
        handle = {"QueueUrl": self.main, "ReceiptHandle": second["ReceiptHandle"]}
        self.sqs.change_message_visibility(**handle, VisibilityTimeout=0)
        [third] = self.receive(self.main, wait=1)
        self.sqs.delete_message(QueueUrl=self.main, ReceiptHandle=third["ReceiptHandle"])
        gone = {"QueueUrl": self.main, "ReceiptHandle": third["ReceiptHandle"]}
        self.invalid("", self.sqs.change_message_visibility, **gone, VisibilityTimeout=5)
        self.invalid("", self.sqs.change_message_visibility, **gone, VisibilityTimeout=43201)
        return f"back after {took:.1f} s, and at once"

    def stale_handle(self):
        self.sqs.send_message(QueueUrl=self.main, MessageBody="stale")
        [first] = self.receive(self.main, VisibilityTimeout=0)
        [second] = self.receive(self.main, VisibilityTimeout=30)
        self.sqs.delete_message(QueueUrl=self.main, ReceiptHandle=first["ReceiptHandle"])
        assert self.count(self.main, "ApproximateNumberOfMessagesNotVisible") == 1, "an old handle deleted a newer delivery"
        self.sqs.delete_message(QueueUrl=self.main, ReceiptHandle=second["ReceiptHandle"])
        # Recorded from AWS: after its time a handle deletes in a standard queue and is refused in a FIFO queue.
        self.sqs.send_message(QueueUrl=self.ordered, MessageBody="stale", MessageGroupId="g")
        [message] = self.receive(self.ordered, VisibilityTimeout=0)
        self.invalid("The receipt handle has expired", self.sqs.delete_message,
                     QueueUrl=self.ordered, ReceiptHandle=message["ReceiptHandle"])
        self.drain(self.ordered, 1)

    def long_poll(self):
        def send_later():
            time.sleep(0.5)
            self.make().send_message(QueueUrl=self.main, MessageBody="wake")

        thread = threading.Thread(target=send_later)
        begin = time.time()
        thread.start()
        bodies = [m["Body"] for m in self.receive(self.main, wait=15)]
        took = time.time() - begin
        thread.join()
        assert bodies == ["wake"] and 0.4 < took < 8, (bodies, took)
        self.sqs.set_queue_attributes(QueueUrl=self.main, Attributes={"VisibilityTimeout": "30"})
        begin = time.time()
        # The queue's own wait, a second by now, where the call names none.
        assert "Messages" not in self.sqs.receive_message(QueueUrl=self.main)
        assert 1 <= time.time() - begin < 5, time.time() - begin
        return f"woke after {took:.2f} s"

    def fifo(self):
        q = self.fifo_queue("groups", ContentBasedDeduplication="true")
        numbers = []
        for body, group in [("a1", "a"), ("a2", "a"), ("b1", "b"), ("a3", "a"), ("b2", "b")]:
            numbers.append(self.sqs.send_message(QueueUrl=q, MessageBody=body, MessageGroupId=group)["SequenceNumber"])
        assert numbers == sorted(numbers) and len(set(numbers)) == 5, numbers
        [a1] = self.receive(q)
        [b1] = self.receive(q)
        assert (a1["Body"], b1["Body"]) == ("a1", "b1"), (a1["Body"], b1["Body"])
        assert (a1["Attributes"]["MessageGroupId"], a1["Attributes"]["SequenceNumber"]) == ("a", numbers[0]), a1
        assert self.receive(q, 10, wait=0) == [], "both groups are held"
        self.sqs.delete_message(QueueUrl=q, ReceiptHandle=b1["ReceiptHandle"])
        [b2] = self.receive(q, 10)
        assert b2["Body"] == "b2"
        self.sqs.change_message_visibility(QueueUrl=q, ReceiptHandle=a1["ReceiptHandle"], VisibilityTimeout=0)
        assert [m["Body"] for m in self.receive(q, 10)] == ["a1", "a2", "a3"], "the whole group, in order"
        self.refused("MissingParameter", "MissingParameter", 400, "MessageGroupId", self.sqs.send_message, QueueUrl=q, MessageBody="x")
        self.invalid("", self.sqs.send_message, QueueUrl=q, MessageBody="x", MessageGroupId="a", DelaySeconds=5)
        return "order kept, groups locked"

    def fifo_dedup(self):
        q = self.fifo_queue("dedup")
        first = self.sqs.send_message(QueueUrl=q, MessageBody="one", MessageGroupId="g", MessageDeduplicationId="id")
        again = self.sqs.send_message(QueueUrl=q, MessageBody="other", MessageGroupId="g", MessageDeduplicationId="id")
        assert (first["MessageId"], first["SequenceNumber"]) == (again["MessageId"], again["SequenceNumber"]), again
        assert self.drain(q, 1) == ["one"]
        late = self.sqs.send_message(QueueUrl=q, MessageBody="one", MessageGroupId="g", MessageDeduplicationId="id")
        assert late["MessageId"] == first["MessageId"] and self.receive(q, wait=0) == [], "remembered after it was deleted"
        self.invalid("ContentBasedDeduplication", self.sqs.send_message, QueueUrl=q, MessageBody="one", MessageGroupId="g")
        by_body = [self.sqs.send_message(QueueUrl=self.ordered, MessageBody="same", MessageGroupId="g")["MessageId"] for _ in range(2)]
        assert by_body[0] == by_body[1] and self.drain(self.ordered, 1) == ["same"]
        scoped = self.fifo_queue("scoped", DeduplicationScope="messageGroup", FifoThroughputLimit="perMessageGroupId")
        for group in "ab":
            self.sqs.send_message(QueueUrl=scoped, MessageBody=group, MessageGroupId=group, MessageDeduplicationId="id")
        assert sorted(self.drain(scoped, 2)) == ["a", "b"]
        return "by id, by content, by group"

    def attempt_id(self):
        q = self.fifo_queue("attempts", ContentBasedDeduplication="true")
        for body in ["1", "2"]:
            self.sqs.send_message(QueueUrl=q, MessageBody=body, MessageGroupId="g")
        first, again = (self.receive(q, 10, ReceiveRequestAttemptId="try") for _ in range(2))
        assert len(first) == 2 and [m["ReceiptHandle"] for m in first] == [m["ReceiptHandle"] for m in again], (first, again)

    def dead_letters(self):
        self.dead = self.queue("dead")
        policy = {"deadLetterTargetArn": self.arn(self.dead), "maxReceiveCount": 1}
        self.source = self.queue("source", RedrivePolicy=json.dumps(policy), VisibilityTimeout="0")
        attribute = {"a": {"DataType": "String", "StringValue": "kept"}}
        sent = self.sqs.send_message(QueueUrl=self.source, MessageBody="poison", MessageAttributes=attribute)
        assert len(self.receive(self.source)) == 1
        until("message gone from its queue", lambda: self.receive(self.source, wait=0) == [])
        [dead] = self.receive(self.dead, VisibilityTimeout=0)
        assert (dead["MessageId"], dead["Body"], dead["MessageAttributes"]) == (sent["MessageId"], "poison", attribute), dead
        assert dead["Attributes"]["DeadLetterQueueSourceArn"] == self.arn(self.source), dead
        sources = self.sqs.list_dead_letter_source_queues(QueueUrl=self.dead)
        assert sources["queueUrls"] == [self.source], sources
        wrong = json.dumps({"deadLetterTargetArn": f"{self.arn(self.dead)}-none", "maxReceiveCount": 1})
        self.invalid("", self.sqs.set_queue_attributes, QueueUrl=self.source, Attributes={"RedrivePolicy": wrong})
        return "same id, attributes kept, source named"

    def move_task(self):
        dead = self.arn(self.dead)
        self.sqs.set_queue_attributes(QueueUrl=self.source, Attributes={"VisibilityTimeout": "30"})
        handle = self.sqs.start_message_move_task(SourceArn=dead)["TaskHandle"]

        def newest():
            return self.sqs.list_message_move_tasks(SourceArn=dead)["Results"][0]

        task = until("completed task", lambda: (t := newest())["Status"] == "COMPLETED" and t)
        assert task["ApproximateNumberOfMessagesMoved"] == 1 and task["SourceArn"] == dead and "TaskHandle" not in task, task
        [back] = self.receive(self.source)
        assert back["Body"] == "poison", back
        # A slow task to another queue, cancelled on its way.
        other = self.queue("other")
        self.sqs.send_message_batch(QueueUrl=self.dead, Entries=[{"Id": f"{i}", "MessageBody": f"{i}"} for i in range(10)])
        slow = {"SourceArn": dead, "DestinationArn": self.arn(other), "MaxNumberOfMessagesPerSecond": 1}
        handle = self.sqs.start_message_move_task(**slow)["TaskHandle"]
        running = newest()
        assert running["Status"] == "RUNNING" and running["TaskHandle"] == handle, running
        self.invalid("already a task running", self.sqs.start_message_move_task, **slow)
        moved = self.sqs.cancel_message_move_task(TaskHandle=handle)["ApproximateNumberOfMessagesMoved"]
        until("cancelled task", lambda: newest()["Status"] == "CANCELLED")
        assert moved < 10, moved
        assert len(self.sqs.list_message_move_tasks(SourceArn=dead, MaxResults=10)["Results"]) == 2
        self.invalid("Source queue must be configured as a Dead Letter Queue", self.sqs.start_message_move_task, SourceArn=self.arn(self.main))
        unknown = ("ResourceNotFoundException", "ResourceNotFoundException", 404, "")
        self.refused(*unknown, self.sqs.start_message_move_task, SourceArn=f"{dead}-none")
        return "one moved back, one cancelled"

    def purge(self):
        self.sqs.send_message(QueueUrl=self.source, MessageBody="p")
        self.sqs.purge_queue(QueueUrl=self.source)
        until("empty queue", lambda: self.count(self.source) + self.count(self.source, "ApproximateNumberOfMessagesNotVisible") == 0)

    def errors(self):
        unknown = ("QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue", 400, NO_QUEUE)
        self.refused(*unknown, self.sqs.get_queue_url, QueueName=f"{self.prefix}-none")
        self.refused(*unknown, self.sqs.send_message, QueueUrl=f"{self.main}-none", MessageBody="b")
        self.refused("ReceiptHandleIsInvalid", "ReceiptHandleIsInvalid", 400, "", self.sqs.delete_message,
                     QueueUrl=self.main, ReceiptHandle="no handle")
        self.refused("InvalidMessageContents", "InvalidMessageContents", 400, "", self.sqs.send_message,
                     QueueUrl=self.main, MessageBody="\ufffe")
        self.invalid("Must be between 1 and 10", self.sqs.receive_message, QueueUrl=self.main, MaxNumberOfMessages=11)
        self.invalid("Must be >= 0 and <= 20", self.sqs.receive_message, QueueUrl=self.main, WaitTimeSeconds=21)
        self.invalid("Message must be shorter than 1048576 bytes", self.sqs.send_message, QueueUrl=self.main, MessageBody="b" * 1_048_577)
        return "both names of each"

    def address(self):
        port = urlsplit(ENDPOINT).port
        # SQS is served where HTTP is, too.
        servers = [f"127.0.0.1:{port}", f"localhost:{port}", *([os.environ["HTTP"]] if "HTTP" in os.environ else [])]
        mine = self.queue("address")
        for server in servers:
            client = self.make(endpoint_url=f"http://{server}")
            url = client.get_queue_url(QueueName=f"{self.prefix}-address")["QueueUrl"]
            assert urlsplit(url).netloc == server, url
            client.send_message(QueueUrl=url, MessageBody=server)
        assert sorted(self.drain(mine, len(servers))) == sorted(servers)
        return "by the client's own name of the server"

    def delete_queue(self):
        queues = self.sqs.list_queues(QueueNamePrefix=self.prefix)["QueueUrls"]
        for url in queues:
            self.sqs.delete_queue(QueueUrl=url)
        assert "QueueUrls" not in self.sqs.list_queues(QueueNamePrefix=self.prefix)
        self.refused("QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue", 400, NO_QUEUE, self.sqs.receive_message, QueueUrl=self.main)
        return f"{len(queues)} queues"

    def signatures(self):
        signed = {"endpoint_url": os.environ["SQS_SIGNED"]}
        key, secret = os.environ["SQS_KEY_ID"], os.environ["SQS_SECRET"]
        good = self.make(**signed, aws_access_key_id=key, aws_secret_access_key=secret)
        url = good.create_queue(QueueName=f"{self.prefix}-signed")["QueueUrl"]
        good.send_message(QueueUrl=url, MessageBody="täglich", MessageAttributes={"a": {"DataType": "String", "StringValue": "b c+d"}})

        def refused(code, **keys):
            client = self.make(**signed, **keys)
            self.refused(code, code, 403, "", client.list_queues)

        refused("SignatureDoesNotMatch", aws_access_key_id=key, aws_secret_access_key="wrong")
        refused("InvalidClientTokenId", aws_access_key_id="AKIDNOBODY", aws_secret_access_key=secret)
        if not self.speaks_json:
            # A link that carries its signature: of the Query encoding only, since JSON needs a header.
            link = good.generate_presigned_url("get_queue_url", {"QueueName": f"{self.prefix}-signed"}, HttpMethod="GET")
            with urllib.request.urlopen(link, timeout=10) as answer:
                assert url in answer.read().decode()
            try:
                urllib.request.urlopen(link.replace("-signed", "-forged"), timeout=10)
                raise AssertionError("a forged link was taken")
            except urllib.error.HTTPError as error:
                assert error.code == 403, error
        good.delete_queue(QueueUrl=url)
        return "the right key only"
