"""The console tools of Kafka 4.4 against BOOTSTRAP, each as its users start it: a process of its own.

CLASSPATH holds Kafka's jars; `cargo xtask clients` asks Maven for it.
"""

import os
import re
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))

from steps import BOOTSTRAP, RUN, finish, step, until, version  # noqa: E402

TOPIC, GROUP = f"con-{RUN}", f"con-{RUN}"
TOOLS = "org.apache.kafka.tools."
# The tools are short; most of their time would go into compiling themselves.
JAVA = ["java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Xmx256m", "-cp", os.environ["CLASSPATH"]]


def tool(name, *args, text=None):
    done = subprocess.run([*JAVA, TOOLS + name, "--bootstrap-server", BOOTSTRAP, *args], input=text, capture_output=True, text=True, timeout=40)
    said = "\n".join(line for line in (done.stdout + done.stderr).splitlines() if not line.startswith("SLF4J"))
    assert done.returncode == 0, f"{name} ended with {done.returncode}: {said[-300:]}"
    return said


def main():
    found = re.search(r"kafka-tools-(\d\S*?)\.jar", os.environ["CLASSPATH"])
    version(found[1])
    with step("kafka-topics") as s:
        tool("TopicCommand", "--create", "--topic", TOPIC, "--partitions", "2", "--config", "retention.ms=3600000")
        assert TOPIC in tool("TopicCommand", "--list").split()
        described = tool("TopicCommand", "--describe", "--topic", TOPIC)
        assert "PartitionCount: 2" in described and "retention.ms=3600000" in described, described
        tool("TopicCommand", "--alter", "--topic", TOPIC, "--partitions", "3")
        s.detail = "create, list, describe, alter"
    with step("kafka-console-producer") as s:
        lines = "".join(f"n:{i}\tk{i}~value {i}\n" for i in range(30))
        tool("ConsoleProducer", "--topic", TOPIC, "--compression-codec", "lz4", "--reader-property", "parse.key=true", "--reader-property", "key.separator=~",
             "--reader-property", "parse.headers=true", text=lines)
        s.detail = "30 records with keys and headers"
    with step("kafka-console-consumer") as s:
        read = tool("consumer.ConsoleConsumer", "--topic", TOPIC, "--from-beginning", "--group", GROUP, "--max-messages", "30", "--timeout-ms", "20000",
                    "--formatter-property", "print.key=true", "--formatter-property", "print.headers=true", "--formatter-property", "print.partition=true")
        rows = sorted(line.split("\t")[1:] for line in read.splitlines() if line.startswith("Partition:"))
        assert rows == sorted([f"n:{i}", f"k{i}", f"value {i}"] for i in range(30)), rows[:2]
        s.detail = "30 records, in a group"
    with step("kafka-get-offsets") as s:
        latest = tool("GetOffsetShell", "--topic", TOPIC).split()
        assert sum(int(line.split(":")[2]) for line in latest if line.startswith(TOPIC)) == 30, latest
        highest = tool("GetOffsetShell", "--topic", TOPIC, "--time", "max-timestamp").split()
        assert any(line.startswith(f"{TOPIC}:") for line in highest), highest
        earliest = tool("GetOffsetShell", "--topic", TOPIC, "--time", "earliest").split()
        assert sum(int(line.split(":")[2]) for line in earliest if line.startswith(TOPIC)) == 0, earliest
        s.detail = "latest, highest timestamp, earliest"
    with step("kafka-consumer-groups") as s:
        assert GROUP in tool("consumer.group.ConsumerGroupCommand", "--list").split()

        def lag():
            rows = [line.split() for line in tool("consumer.group.ConsumerGroupCommand", "--describe", "--group", GROUP).splitlines()]
            return sum(int(row[5]) for row in rows if len(row) > 5 and row[1] == TOPIC)

        assert lag() == 0, lag()
        tool("consumer.group.ConsumerGroupCommand", "--reset-offsets", "--group", GROUP, "--topic", TOPIC, "--to-earliest", "--execute")
        assert lag() == 30, lag()
        state = tool("consumer.group.ConsumerGroupCommand", "--describe", "--group", GROUP, "--state")
        assert "Empty" in state, state
        tool("consumer.group.ConsumerGroupCommand", "--delete", "--group", GROUP)
        until("group gone", lambda: GROUP not in tool("consumer.group.ConsumerGroupCommand", "--list").split())
        s.detail = "list, describe, reset, delete"
    with step("kafka-configs") as s:
        tool("ConfigCommand", "--alter", "--entity-type", "topics", "--entity-name", TOPIC, "--add-config", "retention.ms=7200000,max.message.bytes=2000000")
        time.sleep(0.3)
        described = tool("ConfigCommand", "--describe", "--entity-type", "topics", "--entity-name", TOPIC)
        assert "retention.ms=7200000" in described and "max.message.bytes=2000000" in described, described
        tool("ConfigCommand", "--alter", "--entity-type", "topics", "--entity-name", TOPIC, "--delete-config", "retention.ms")
        assert "retention.ms=7200000" not in tool("ConfigCommand", "--describe", "--entity-type", "topics", "--entity-name", TOPIC)
        s.detail = "add, describe, delete"
    with step("kafka-log-dirs") as s:
        assert f'"{TOPIC}-0"' in tool("LogDirsCommand", "--describe", "--topic-list", TOPIC)
        s.detail = "describe"
    with step("kafka-broker-api-versions") as s:
        assert "Produce(0): 0 to " in tool("BrokerApiVersionsCommand")
        s.detail = "lists Produce from 0"
    with step("kafka-topics-delete") as s:
        tool("TopicCommand", "--delete", "--topic", TOPIC)
        until("topic gone", lambda: TOPIC not in tool("TopicCommand", "--list").split())
        s.detail = "delete"
    finish()


main()
