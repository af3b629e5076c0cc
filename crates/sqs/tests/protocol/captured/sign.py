"""Signs requests that no SDK sends, but could: strange paths, queries, headers and bodies.

    python3 -m venv new && new/bin/pip install botocore==1.44.8
    new/bin/python sign.py > signed.jsonl

The lines are as those of capture.py; chance is the same in every run.
"""
import base64
import json
import random
from urllib.parse import quote

from botocore.auth import SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from capture import HOST, TOKEN

SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"


def main():
    chance = random.Random(4)
    letters = "abcXYZ019-_.~!*'()&=+%/?:@ ;,äß€中\U0001f600"
    text = lambda most: "".join(chance.choice(letters) for _ in range(chance.randint(0, most)))
    segment = lambda: chance.choice(["", ".", "..", "jobs", "jobs.fifo", "000000000000", quote(text(6), safe="~")])
    for number in range(120):
        token = chance.choice([None, TOKEN])
        path = "/" + "/".join(segment() for _ in range(chance.randint(0, 5)))
        query = "&".join(f"{quote(text(5), safe='~')}={quote(text(5), safe='~')}" for _ in range(chance.randint(0, 5)))
        headers = {"X-Amz-Target": "AmazonSQS.SendMessage"} if chance.random() < 0.5 else {}
        for _ in range(chance.randint(0, 3)):
            value = " ".join(chance.choice(["a", "b  c", " d ", "x,y", ""]) for _ in range(3))
            headers["X-Own-" + chance.choice("ABCD")] = value
        body = chance.randbytes(chance.randint(0, 60))
        method = chance.choice(["GET", "POST", "PUT"])
        request = AWSRequest(method=method, url=f"http://{HOST}{path}" + ("?" + query if query else ""), headers=headers, data=body)
        credentials = Credentials("AKIDEXAMPLE", SECRET, token)
        if number % 4 == 3:
            request.data = b""
            SigV4QueryAuth(credentials, "sqs", "eu-west-1", expires=600).add_auth(request)
        else:
            SigV4Auth(credentials, "sqs", "eu-west-1").add_auth(request)
        sent_path, _, sent_query = request.url.split(HOST, 1)[1].partition("?")
        sent = {name: value for name, value in request.headers.items()}
        sent["Host"] = HOST
        print(json.dumps(dict(
            action="", method=method, path=sent_path, query=sent_query, headers=sent, token=token,
            body=base64.b64encode(request.data).decode())))


main()
