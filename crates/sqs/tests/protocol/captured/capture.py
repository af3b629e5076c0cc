"""Records what botocore sends to SQS, as one line of JSON per request, signed.

    python3 -m venv new && new/bin/pip install botocore==1.44.8    # speaks AWS JSON
    python3 -m venv old && old/bin/pip install botocore==1.31.80   # speaks Query
    new/bin/python capture.py > json.jsonl && old/bin/python capture.py > query.jsonl

The calls, and their order, are the same with both, so that line N of both files is the same call in
the two encodings. Nothing is sent: a handler answers in the network's place.
"""
import base64
import json
import random
import sys

import botocore
import botocore.session
from botocore.awsrequest import AWSResponse
from botocore.config import Config

HOST = "queues.example:9324"
TOKEN = "FwoGZXIvYXdzE//session+token=="
URL = f"http://{HOST}/000000000000/jobs"
FIFO_URL = f"http://{HOST}/000000000000/jobs.fifo"
ARN = "arn:aws:sqs:eu-west-1:000000000000:"
REDRIVE = json.dumps({"deadLetterTargetArn": ARN + "dead", "maxReceiveCount": "5"})
SENT = {
    "Text": {"DataType": "String", "StringValue": "a&b=c + %20 ä\r\n<x>"},
    "Count.of": {"DataType": "Number.int", "StringValue": "-12.5e3"},
    "bytes": {"DataType": "Binary", "BinaryValue": b"\x00\xff\x10binary"},
}
TRACE = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1-5759e988-bd862e3fe1be46a994272793"}}
CALLS = [
    ("AddPermission", dict(QueueUrl=URL, Label="share", AWSAccountIds=["111111111111", "222222222222"], Actions=["SendMessage", "*"])),
    ("CancelMessageMoveTask", dict(TaskHandle="eyJ0YXNrIjoxfQ==")),
    ("ChangeMessageVisibility", dict(QueueUrl=URL, ReceiptHandle="AQEB+/=", VisibilityTimeout=0)),
    ("ChangeMessageVisibilityBatch", dict(QueueUrl=URL, Entries=[dict(Id=f"e-{n}", ReceiptHandle=f"h{n}", VisibilityTimeout=n) for n in range(10)])),
    ("CreateQueue", dict(QueueName="jobs", Attributes={"DelaySeconds": "5", "RedrivePolicy": REDRIVE, "Policy": "{}"}, tags={"team": "a b", "empty": ""})),
    ("CreateQueue", dict(QueueName="jobs.fifo", Attributes={"FifoQueue": "true", "ContentBasedDeduplication": "true"})),
    ("CreateQueue", dict(QueueName="jobs")),
    ("DeleteMessage", dict(QueueUrl=URL, ReceiptHandle="AQEB+/=")),
    ("DeleteMessageBatch", dict(QueueUrl=URL, Entries=[dict(Id="a", ReceiptHandle="1"), dict(Id="b", ReceiptHandle="2")])),
    ("DeleteQueue", dict(QueueUrl=URL)),
    ("GetQueueAttributes", dict(QueueUrl=URL, AttributeNames=["All"])),
    ("GetQueueAttributes", dict(QueueUrl=URL, AttributeNames=["QueueArn", "DelaySeconds"])),
    ("GetQueueUrl", dict(QueueName="jobs.fifo", QueueOwnerAWSAccountId="000000000000")),
    ("ListDeadLetterSourceQueues", dict(QueueUrl=URL, MaxResults=7, NextToken="t/+=")),
    ("ListMessageMoveTasks", dict(SourceArn=ARN + "dead", MaxResults=3)),
    ("ListQueueTags", dict(QueueUrl=URL)),
    ("ListQueues", dict()),
    ("ListQueues", dict(QueueNamePrefix="jo", MaxResults=1000, NextToken="x")),
    ("PurgeQueue", dict(QueueUrl=FIFO_URL)),
    ("ReceiveMessage", dict(QueueUrl=URL)),
    ("ReceiveMessage", dict(QueueUrl=FIFO_URL, AttributeNames=["All"], MessageAttributeNames=["Text", "By.*"], MaxNumberOfMessages=10, VisibilityTimeout=43200, WaitTimeSeconds=20, ReceiveRequestAttemptId="try-1")),
    ("RemovePermission", dict(QueueUrl=URL, Label="share")),
    ("SendMessage", dict(QueueUrl=URL, MessageBody="hello")),
    ("SendMessage", dict(QueueUrl=URL, MessageBody="tab\tline\nreturn\r\n& + % ä €  \U0001f600", DelaySeconds=900, MessageAttributes=SENT, MessageSystemAttributes=TRACE)),
    ("SendMessage", dict(QueueUrl=FIFO_URL, MessageBody="{}", MessageDeduplicationId="d!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", MessageGroupId="g 1".replace(" ", "_"))),
    ("SendMessageBatch", dict(QueueUrl=FIFO_URL, Entries=[dict(Id=str(n), MessageBody=f"body {n}", DelaySeconds=n, MessageAttributes=SENT, MessageSystemAttributes=TRACE, MessageDeduplicationId=f"d{n}", MessageGroupId="g") for n in range(10)])),
    ("SetQueueAttributes", dict(QueueUrl=FIFO_URL, Attributes={"VisibilityTimeout": "0", "DeduplicationScope": "messageGroup", "FifoThroughputLimit": "perMessageGroupId"})),
    ("StartMessageMoveTask", dict(SourceArn=ARN + "dead", DestinationArn=ARN + "jobs", MaxNumberOfMessagesPerSecond=500)),
    ("StartMessageMoveTask", dict(SourceArn=ARN + "dead")),
    ("TagQueue", dict(QueueUrl=URL, Tags={"k": "v", "Größe": "10 %"})),
    ("UntagQueue", dict(QueueUrl=URL, TagKeys=["k", "Größe"])),
]


def random_calls(count):
    """SendMessage with anything in it; chance is the same in every run."""
    chance = random.Random(20261130)
    letters = "abcXYZ019-_ .~!*'()&=+%/?:@\t\n\r<>\"äß€中\U0001f600"
    text = lambda least, most: "".join(chance.choice(letters) for _ in range(chance.randint(least, most)))
    name = lambda: "".join(chance.choice("abcXYZ019_-") for _ in range(chance.randint(1, 20)))
    for _ in range(count):
        attributes = {}
        for _ in range(chance.randint(0, 10)):
            value = [
                {"DataType": "String." + name(), "StringValue": text(1, 30)},
                {"DataType": "Number", "StringValue": str(chance.uniform(-1e9, 1e9))},
                {"DataType": "Binary", "BinaryValue": chance.randbytes(chance.randint(1, 40))},
            ]
            attributes[name()] = chance.choice(value)
        yield "SendMessage", dict(QueueUrl=f"http://{HOST}/{chance.randint(0, 10**12 - 1):012}/{name()}", MessageBody=text(1, 120), MessageAttributes=attributes)


def client(token):
    session = botocore.session.get_session()
    return session.create_client(
        "sqs", region_name="eu-west-1", endpoint_url=f"http://{HOST}", aws_access_key_id="AKIDEXAMPLE",
        aws_secret_access_key="wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", aws_session_token=token, config=Config(retries={"max_attempts": 0}))


def snake(name):
    return botocore.xform_name(name)


def line(action, method, url, headers, body, token):
    path = url.split(HOST, 1)[1] or "/"
    path, _, query = path.partition("?")
    text = lambda value: value.decode() if isinstance(value, bytes) else str(value)
    unsigned = ("User-Agent", "amz-sdk-invocation-id", "amz-sdk-request", "Content-Length")
    headers = {name: text(value) for name, value in headers.items() if name not in unsigned}
    headers.setdefault("Host", HOST)
    body = body.encode() if isinstance(body, str) else body or b""
    return json.dumps(dict(action=action, method=method, path=path, query=query, headers=headers, token=token, body=base64.b64encode(body).decode()))


def main():
    plain, temporary = client(None), client(TOKEN)
    for sqs in plain, temporary:
        sqs.seen = []
        def handler(request, sqs=sqs, **_):
            sqs.seen.append(request)
            is_json = sqs.meta.service_model.metadata["protocol"] == "json"
            xml = f"<{sqs.action}Response><{sqs.action}Result/></{sqs.action}Response>"
            return AWSResponse(request.url, 200, {}, Raw(b"{}" if is_json else xml.encode()))
        sqs.meta.events.register("before-send", handler)
    for number, (action, parameters) in enumerate([*CALLS, *random_calls(60)]):
        sqs, token = (temporary, TOKEN) if number % 3 == 2 else (plain, None)
        sqs.action = action
        getattr(sqs, snake(action))(**parameters)
        sent = sqs.seen.pop()
        print(line(action, sent.method, sent.url, sent.headers, sent.body, token))
    if "query" == plain.meta.service_model.metadata["protocol"]:
        for action, parameters in CALLS:
            for sqs, method, token in (plain, "GET", None), (temporary, "POST", TOKEN):
                url = sqs.generate_presigned_url(snake(action), Params=parameters, ExpiresIn=600, HttpMethod=method)
                print(line(action, method, url, {}, b"", token))


class Raw:
    def __init__(self, content):
        self.content = content

    def stream(self, *_, **__):
        yield self.content


if __name__ == "__main__":
    main()
    print(f"botocore {botocore.__version__}", file=sys.stderr)
