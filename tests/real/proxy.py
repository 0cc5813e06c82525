"""Evenkeel under test: starting it in front of engines, and reading its records and its admin API."""

import http.client
import json
import os
import re
import signal
from pathlib import Path

from processes import Group, wait_until

ROOT = Path(__file__).resolve().parents[2]


def binary():
    """The program under test: `EVENKEEL_BIN`, or what `cargo build` makes."""
    path = Path(os.environ.get("EVENKEEL_BIN", ROOT / "target/debug/evenkeel"))
    assert path.is_file(), f"{path} is missing; build it with: cargo build --bin evenkeel"
    return path


def address(text):
    host, port = text.rsplit(":", 1)
    return host, int(port)


class Proxy:
    """`evenkeel serve` on ports that the kernel chose, in front of the given engines. `more` are further tables of its
    configuration; what else is given are lines of the table of that name."""

    def __init__(self, name, engines, folder, policy="round_robin", pool="", records="", measure="", server="", more=""):
        self.folder = Path(folder) / name
        self.records_dir = self.folder / "records"
        self.folder.mkdir(parents=True)
        config = self.folder / "evenkeel.toml"
        config.write_text(self.config(engines, policy, pool, records, measure, server) + more)
        self.group = Group([binary(), "serve", "--config", config], self.folder / "output.log")
        line = r"^listening server=(\S+) admin=(\S+)$"
        found = self.group.wait_for(line, 20, "evenkeel prints the addresses it listens on")
        self.server, self.admin = address(found[1]), address(found[2])
        self.url = f"http://{found[1]}"

    def config(self, engines, policy, pool, records, measure, server):
        lines = [
            "[server]",
            'listen = "127.0.0.1:0"',
            server,
            "[admin]",
            'listen = "127.0.0.1:0"',
            "[records]",
            f"dir = {json.dumps(str(self.records_dir))}",
            records,
            "[measure]",
            measure,
            "[[pools]]",
            'name = "tiny"',
            f'policy = {{ kind = "{policy}" }}',
            pool,
        ]
        for engine in engines:
            lines += ["[[pools.instances]]", f'name = "{engine.name}"', f'url = "{engine.url}"']
        return "\n".join(lines) + "\n"

    def get_admin(self, path):
        """Status and body text of one GET on the admin listener."""
        connection = http.client.HTTPConnection(*self.admin, timeout=10)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def metrics(self):
        """The samples of the metrics: values by name and labels."""
        status, text = self.get_admin("/metrics")
        assert status == 200, text
        samples = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        return {name: float(value) for name, value in samples}

    def metric(self, name, **labels):
        """The sum of the samples with this name and these labels."""
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        return sum(
            value
            for sample, value in self.metrics().items()
            if sample.partition("{")[0] == name and all(label in sample for label in wanted)
        )

    def descriptors(self):
        """Open files and sockets of the process."""
        return len(os.listdir(f"/proc/{self.group.pid}/fd"))

    def memory_mib(self, key):
        """`VmRSS` is what it holds, `VmHWM` the most it ever held."""
        status = Path(f"/proc/{self.group.pid}/status").read_text()
        return int(re.search(rf"^{key}:\s+(\d+) kB$", status, re.MULTILINE)[1]) / 1024

    def instances(self):
        """The instances of the live table, by name."""
        status, text = self.get_admin("/api/fleet")
        assert status == 200, text
        return {one["name"]: one for pool in json.loads(text)["pools"] for one in pool["instances"]}

    def outstanding(self):
        """Outstanding requests and tokens of each instance."""
        return {
            name: (one["outstanding_requests"], one["outstanding_tokens"]) for name, one in self.instances().items()
        }

    def records(self):
        """All complete record lines written so far, by request id."""
        return self.lines("records")

    def lines(self, kind):
        """All complete lines of the files of a kind written so far, by request id."""
        found = {}
        for path in sorted(self.records_dir.rglob(f"{kind}-*.jsonl")):
            for text in path.read_bytes().split(b"\n")[:-1]:
                line = json.loads(text)
                assert line["request_id"] not in found, f"two lines of {kind} for {line['request_id']}"
                found[line["request_id"]] = line
        return found

    def records_of(self, ids, patience_s=10):
        """The records of these requests, in order; waits for the writer."""
        return self.lines_of("records", ids, patience_s)

    def chunks_of(self, ids, patience_s=20):
        """Their lines of the chunk files."""
        return self.lines_of("chunks", ids, patience_s)

    def lines_of(self, kind, ids, patience_s):
        ids = list(ids)

        def all_there():
            found = self.lines(kind)
            return found if all(one in found for one in ids) else None

        found = wait_until(all_there, patience_s, f"{kind} of {len(ids)} requests in {self.records_dir}", every_s=0.1)
        return [found[one] for one in ids]

    def record(self, request_id):
        return self.records_of([request_id])[0]

    def stop(self):
        if self.group.running():
            self.group.process.send_signal(signal.SIGTERM)
        self.group.stop()
