"""Stands in for the module `test.service`, which kafka-python's source package leaves out.

Its fixtures want a broker as an object with a start and an end. Ours runs already and outlives them; those that would start
a Kafka of their own (with SASL, TLS, or several nodes) cannot, and say so.
"""

import pytest


class ExternalService:
    """A broker that somebody else started and will stop."""

    def __init__(self, host, port):
        self.host, self.port = host, port

    def stop(self):
        pass

    def dump_logs(self):
        pass


class SpawnedService:
    def __init__(self, *_args, **_named):
        pytest.skip("wants to start a Kafka of its own")
