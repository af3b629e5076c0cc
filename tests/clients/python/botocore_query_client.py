"""botocore 1.31.80, the last before its first JSON one, against SQS: as all older clients it speaks the Query encoding."""

import botocore
import botocore.session
from botocore.config import Config

from sqs_cycle import ENDPOINT, Cycle
from steps import finish, version


def client(**options):
    usual = {"endpoint_url": ENDPOINT, "region_name": "us-east-1", "aws_access_key_id": "any", "aws_secret_access_key": "key",
             "config": Config(retries={"total_max_attempts": 1}, connect_timeout=5, read_timeout=30)}
    return botocore.session.get_session().create_client("sqs", **usual | options)


version(botocore.__version__)
Cycle(client, "query", speaks_json=False).run()
finish()
