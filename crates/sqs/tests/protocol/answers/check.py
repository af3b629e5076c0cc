"""Shows that botocore reads out of the answers beside this file what was put into them.

    python3 -m venv new && new/bin/pip install botocore==1.44.8    # reads AWS JSON
    python3 -m venv old && old/bin/pip install botocore==1.31.80   # reads XML
    new/bin/python check.py > json.txt && old/bin/python check.py > xml.txt && diff json.txt xml.txt

Both print every answer as botocore's callers see it, and check the checksums. The two differ where
the encodings do: lists that are empty, and the older model has no answer at all for some actions.
"""
import hashlib
import json
import pathlib

import botocore.parsers
import botocore.session

model = botocore.session.get_session().get_service_model("sqs")
protocol = model.metadata["protocol"]
suffix = {"json": "json", "query": "xml"}[protocol]
parser = botocore.parsers.create_parser(protocol)
headers = {"x-amzn-requestid": "7a62c49f-347e-4fc4-9331-6e8e7a96aa73"}


def read(path, status, extra, shape):
    parsed = parser.parse({"status_code": status, "headers": {**headers, **extra}, "body": path.read_bytes()}, shape)
    assert parsed["ResponseMetadata"]["RequestId"] == headers["x-amzn-requestid"], path
    return {name: value for name, value in parsed.items() if name != "ResponseMetadata"}


for path in sorted(pathlib.Path(__file__).parent.glob(f"[A-Z]*.{suffix}")):
    action = path.name.split(".")[0]
    parsed = read(path, 200, {}, model.operation_model(action).output_shape)
    for message in parsed.get("Messages", []):
        assert hashlib.md5(message["Body"].encode()).hexdigest() == message["MD5OfBody"]
    shown = {name: value for name, value in parsed.items() if value != []}
    print(path.name.removesuffix(f".{suffix}"), json.dumps(shown, sort_keys=True, default=repr))

error = read(pathlib.Path(__file__).parent / f"error.{suffix}", 400, {"x-amzn-query-error": "AWS.SimpleQueueService.NonExistentQueue;Sender"}, None if protocol == "query" else model.operation_model("DeleteQueue").output_shape)
assert error["Error"]["Code"] == "AWS.SimpleQueueService.NonExistentQueue", error
assert error["Error"]["Message"].startswith("The specified queue does not exist"), error
assert error["Error"]["Type"] == "Sender", error
