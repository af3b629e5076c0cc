"""Celery over `sqs://` (kombu): a real worker takes tasks from a queue that kombu makes itself.

The worker runs this same file as a process of its own; a task tells what it did by a line in a file that both know.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from urllib.parse import urlsplit

import celery
import kombu
from celery import Celery

from steps import RUN, finish, step, until, version

# A worker is told the run it belongs to; whoever starts it makes one.
ENDPOINT = os.environ["SQS"]
PREFIX = os.environ.setdefault("CELERY_TEST_PREFIX", f"celery-{RUN}-")
STORY = os.environ.setdefault("CELERY_TEST_STORY", os.path.join(tempfile.gettempdir(), f"{PREFIX}story"))
VISIBILITY_S = 4

app = Celery("barges", broker=f"sqs://any:key@{urlsplit(ENDPOINT).netloc}//")
app.conf.update(
    broker_transport_options={
        "region": "us-east-1", "is_secure": False, "queue_name_prefix": PREFIX,
        "visibility_timeout": VISIBILITY_S, "wait_time_seconds": 2, "polling_interval": 0.1},
    task_default_queue="tasks", task_acks_late=True, task_reject_on_worker_lost=True, worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True, worker_hijack_root_logger=False, worker_enable_remote_control=False,
    worker_send_task_events=False, task_ignore_result=True, task_create_missing_queues=True)


def note(*words):
    with open(STORY, "a") as story:
        story.write(" ".join(map(str, words)) + "\n")


def story(word):
    if not os.path.exists(STORY):
        return []
    with open(STORY) as lines:
        return [line.split()[1:] for line in lines if line.split()[0] == word]


@app.task(name="add")
def add(a, b):
    note("added", a + b)


@app.task(name="flaky", bind=True, max_retries=3)
def flaky(self, name):
    note("tried", name, self.request.retries)
    if self.request.retries < 2:
        raise self.retry(countdown=1)


@app.task(name="deadly", bind=True)
def deadly(self, name):
    """Takes its worker with it, once: the message must come back when its time is over."""
    first = not story("died")
    note("died" if first else "survived", name, time.time())
    if first:
        os.kill(os.getppid(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


class Worker:
    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", "celery_client", "worker", "--loglevel=WARNING", "--concurrency=1",
             "--without-gossip", "--without-mingle", "--without-heartbeat"],
            cwd=os.path.dirname(os.path.abspath(__file__)), stdout=sys.stderr)

    def stop(self):
        self.process.terminate()
        self.process.wait(20)


def main():
    version(f"{celery.__version__} (kombu {kombu.__version__})")
    with step("send") as s:
        for i in range(20):
            add.apply_async((i, i), retry=False)
        s.detail = "20 tasks, before a worker is there"
    worker = Worker()
    with step("work") as s:
        until("twenty sums", lambda: len(story("added")) >= 20)
        sums = sorted(int(words[0]) for words in story("added"))
        assert sums == [2 * i for i in range(20)], sums
        s.detail = "each once"
    with step("retry") as s:
        begin = time.time()
        flaky.delay("f")
        until("third try", lambda: len(story("tried")) >= 3)
        assert story("tried") == [["f", "0"], ["f", "1"], ["f", "2"]] and time.time() - begin > 1.8, story("tried")
        s.detail = "twice, a second apart"
    with step("countdown") as s:
        begin = time.time()
        add.apply_async((1000, 1), countdown=1)
        until("late task", lambda: ["1001"] in story("added"))
        assert time.time() - begin > 0.9
        s.detail = f"after {time.time() - begin:.1f} s"
    with step("visibility-timeout") as s:
        deadly.delay("d")
        until("death of the worker", lambda: worker.process.poll() is not None)
        worker = Worker()
        until("second delivery", lambda: story("survived"))
        [[_, died]], [[_, survived]] = story("died"), story("survived")
        took = float(survived) - float(died)
        # It was received some time before it began to run.
        assert took > VISIBILITY_S / 2, took
        s.detail = f"a killed worker's task came back after {took:.1f} s"
    with step("queue-empty"):
        worker.stop()
        with app.connection() as connection:
            client = connection.default_channel.sqs()
            url = client.get_queue_url(QueueName=f"{PREFIX}tasks")["QueueUrl"]

            def left():
                names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
                return sum(map(int, client.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"].values()))

            until("empty queue", lambda: left() == 0)
            client.delete_queue(QueueUrl=url)
        os.remove(STORY)
    finish()


if __name__ == "__main__":
    main()
