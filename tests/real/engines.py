"""Real vLLM servers on the CPU, serving the tiny model, and what their own /metrics say."""

import http.client
import os
import re
import socket
from pathlib import Path

from processes import Group, wait_until

HOME = Path(__file__).resolve().parents[2] / "target" / "real"
MODEL = "tiny"
START_PATIENCE_S = 360


def free_port():
    """A port that the kernel chose and nobody holds."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Engine:
    """One vLLM server. It is started at once; `wait_ready` waits until it answers."""

    def __init__(self, name, folder, options=()):
        self.name = name
        self.port = free_port()
        self.address = ("127.0.0.1", self.port)
        self.url = f"http://127.0.0.1:{self.port}"
        command = [HOME / "vllm/bin/python", HOME / "vllm/bin/vllm", "serve", HOME / "model"]
        command += ["--host", "127.0.0.1", "--port", self.port, "--served-model-name", MODEL]
        command += ["--load-format", "dummy", "--dtype", "bfloat16", "--enforce-eager"]
        command += ["--max-model-len", 2048, "--max-num-seqs", 64, *options]
        quiet_and_offline = {
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "OMP_NUM_THREADS": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "DO_NOT_TRACK": "1",
            "HF_HUB_OFFLINE": "1",
            "TRANSFORMERS_OFFLINE": "1",
        }
        self.group = Group(command, Path(folder) / f"{name}.log", env=os.environ | quiet_and_offline)

    def get(self, path):
        """Status and body text of one GET."""
        connection = http.client.HTTPConnection(*self.address, timeout=10)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def healthy(self):
        if not self.group.running():
            raise AssertionError(f"vLLM {self.name} ended at start:\n{self.group.tail()}")
        try:
            return self.get("/health")[0] == 200
        except OSError:
            return False

    def wait_ready(self):
        try:
            wait_until(self.healthy, START_PATIENCE_S, f"vLLM {self.name} healthy", every_s=0.5)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.group.tail()}") from None

    def gauge(self, name):
        """The sum of a metric over its label sets; an AssertionError when the engine has no such metric."""
        values = re.findall(rf"^{re.escape(name)}(?:{{[^}}]*}})? (\S+)$", self.get("/metrics")[1], re.MULTILINE)
        assert values, f"vLLM has no metric {name}"
        return sum(float(value) for value in values)

    def running(self):
        """Requests in the engine's batch or queue."""
        return self.gauge("vllm:num_requests_running") + self.gauge("vllm:num_requests_waiting")

    def ttft_sum_and_count(self):
        """Seconds and requests of the engine's own time-to-first-token histogram."""
        name = "vllm:time_to_first_token_seconds"
        return self.gauge(f"{name}_sum"), self.gauge(f"{name}_count")

    def core_pid(self):
        """The process that runs the model, below the API server."""
        found = [pid for pid, title in self.group.descendants().items() if title.startswith("VLLM::EngineCore")]
        assert len(found) == 1, f"one EngineCore expected below {self.group.pid}: {self.group.descendants()}"
        return found[0]

    def stop(self):
        self.group.stop()
