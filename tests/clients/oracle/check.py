"""Holds a broker's answers to the probe scripts against those that were written down: `check.py HOST:PORT`.

Prints `STEP PROBE ok` or `STEP PROBE fail …` for each probe, as the other client programs do, and the
differing lines to standard error; ends with 1 on any difference. `--write DIRECTORY` writes the answers
there instead (`expected` after a wanted change; any other directory to compare with a real Kafka).
Words after the address choose probes.

What differs from run to run is masked: ids by the order of their appearance, so that two equal ones
stay equal; times, session ids, producer ids, checksums; the address.
"""

import argparse
import concurrent.futures
import difflib
import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
PROBES = ("produce", "fetch", "metadata", "admin", "groups")
# The Kafka whose answers the scripts were written beside.
SCRIPTS = "4.4.0"
# Longer than the slowest probe needs on a busy machine.
PROBE_SECONDS_MAX = 300
# Looks like nothing else in an answer and has as many characters as the one a probe makes for itself.
RUN_DIGITS = 6

UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
ZERO = "00000000-0000-0000-0000-000000000000"


class Mask:
    """Replaces what differs between runs."""

    def __init__(self, bootstrap, run):
        self.seen = {}
        _, port = bootstrap.rsplit(":", 1)
        self.patterns = [
            (re.compile(re.escape(run)), "RUN"),
            (re.compile(rf"(?<!\d){port}(?!\d)"), "PORT"),
            (re.compile(r"(?<!\d)1[789]\d{11}(?!\d)"), "TIME"),
            # A time so long ago that nothing is older.
            (re.compile(r"-92233\d{14}(?!\d)"), "EARLIEST"),
            (re.compile(r"\b(SessionId=)[1-9]\d*"), r"\1SESSION"),
            (re.compile(r"\b(ProducerId=)(?!7777)\d+"), r"\1PRODUCER"),
            (re.compile(r"\b(ClusterId=)'[^']*'"), r"\1CLUSTER"),
            (re.compile(r"\b(TotalBytes=|UsableBytes=)\d+"), r"\1BYTES"),
            (re.compile(r"\b(LogDir=)'[^']*'"), r"\1DIRECTORY"),
            (re.compile(r"(Name='log\.dirs' Value=)'[^']*'"), r"\1DIRECTORY"),
            # In frames that are shown as they are: the port, and the cluster's id with its length.
            (re.compile(rf"0000{int(port):04x}"), "PORT"),
            (re.compile(r"(PORT\w{2,4}?)(17|0016)[0-9a-f]{44}"), r"\1CLUSTER"),
            (re.compile(r"\b0x[0-9a-f]{8}\b"), "CRC"),
            # How long it took.
            (re.compile(r"\b\d+\.\d s\b"), "T s"),
            (re.compile(r"\b\d+ topics\b"), "N topics"),
            (re.compile(r"\bTopics=\d+"), "Topics=N"),
        ]

    def __call__(self, line):
        for pattern, replacement in self.patterns:
            line = pattern.sub(replacement, line)
        return UUID.sub(self.number, line)

    def number(self, match):
        if match[0] == ZERO:
            return "ZERO"
        return f"ID{self.seen.setdefault(match[0], len(self.seen) + 1)}"


def answers(probe, bootstrap):
    """The masked lines of one probe; an error of the probe itself is its last line."""
    run = f"{int.from_bytes(os.urandom(4)) % 10**RUN_DIGITS:0{RUN_DIGITS}d}"
    # Some names are made of hashes.
    environment = {**os.environ, "BOOTSTRAP": bootstrap, "RUN": run, "PYTHONHASHSEED": "0"}
    try:
        done = subprocess.run(
            [sys.executable, HERE / f"{probe}.py"], env=environment, capture_output=True, text=True,
            timeout=PROBE_SECONDS_MAX,
        )
    except subprocess.TimeoutExpired:
        return [f"(took longer than {PROBE_SECONDS_MAX} s)"]
    lines = list(map(Mask(bootstrap, run), done.stdout.splitlines()))
    if done.returncode != 0:
        lines.append("(failed: " + (done.stderr.splitlines() or ["without a word"])[-1] + ")")
    return lines


def main():
    parser = argparse.ArgumentParser(description="compares a broker's answers with those written down")
    parser.add_argument("bootstrap", nargs="?", default=os.environ.get("BOOTSTRAP"))
    parser.add_argument("probes", nargs="*", metavar="PROBE", help=f"of {', '.join(PROBES)}; default: all")
    parser.add_argument("--write", type=pathlib.Path, metavar="DIRECTORY")
    chosen = parser.parse_args()
    if chosen.bootstrap is None:
        parser.error("needs an address, or BOOTSTRAP in the environment")

    probes = chosen.probes or PROBES
    print(f"VERSION {SCRIPTS}", flush=True)
    failed = False
    # They mostly wait, each with names of its own.
    with concurrent.futures.ThreadPoolExecutor(len(probes)) as pool:
        results = pool.map(lambda probe: answers(probe, chosen.bootstrap), probes)
        results = list(zip(probes, results))
    for probe, got in results:
        if chosen.write:
            chosen.write.mkdir(exist_ok=True)
            (chosen.write / f"{probe}.txt").write_text("".join(line + "\n" for line in got))
            continue
        wanted = (HERE / "expected" / f"{probe}.txt").read_text().splitlines()
        difference = list(difflib.unified_diff(wanted, got, "written down", "answered", lineterm="", n=0))
        changed = [line for line in difference[2:] if not line.startswith("@@")]
        print("\n".join(difference), file=sys.stderr, flush=True)
        firsts = [next((line for line in changed if line.startswith(sign)), "") for sign in "-+"]
        verdict = f"fail {len(changed)} lines differ, first {' '.join(firsts)}" if changed else f"ok {len(got)} answers"
        print(f"STEP {probe} {verdict}", flush=True)
        failed |= bool(changed)
    sys.exit(failed)


if __name__ == "__main__":
    main()
