"""boto3, the newest, against SQS: it speaks AWS JSON 1.0."""

import boto3
from botocore.config import Config

from sqs_cycle import ENDPOINT, Cycle
from steps import finish, version


def client(**options):
    usual = {"endpoint_url": ENDPOINT, "region_name": "us-east-1", "aws_access_key_id": "any", "aws_secret_access_key": "key",
             # An answer that would be asked again is shown as it is.
             "config": Config(retries={"total_max_attempts": 1}, connect_timeout=5, read_timeout=30)}
    return boto3.client("sqs", **usual | options)


version(boto3.__version__)
Cycle(client, "boto", speaks_json=True).run()
finish()
