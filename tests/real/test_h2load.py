"""nghttp2's h2load against the HTTP/2 listener: every request is answered once, both sides count the same, nothing is
left behind."""

import json
import re
import subprocess

import pytest

from attackers import assert_nothing_left, program
from processes import Group, wait_until
from proxy import Proxy, binary

REQUESTS = 1_000
# connections, and streams on each: hyper's first advertised limit is passed, and many handshakes are made
SHAPES = {"many streams": (4, 250), "many connections": (200, 5)}
# so that idle connections to instances are gone soon after a run
TIMEOUTS = "[timeouts]\nupstream_idle_s = 0.5\n"


class SimulatedEngine:
    """`evenkeel engine`: it answers streamed requests and others, and counts what it has answered."""

    name = "simulated"

    def __init__(self, folder):
        command = [binary(), "engine", "--listen", "127.0.0.1:0", "--profile", "test-fast", "--model", "tiny"]
        self.group = Group(command, folder / "engine.log")
        self.url = self.group.wait_for(r"listening (http://\S+)$", 20, "the engine prints its address")[1]


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("h2load")


@pytest.fixture(scope="module")
def certificate(run_folder):
    """A certificate that signs itself; h2load asks for no more."""
    cert, key = run_folder / "cert.pem", run_folder / "key.pem"
    command = [program("openssl", "openssl"), "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-days", "2", "-subj", "/CN=localhost", "-keyout", key, "-out", cert]
    subprocess.run(command, check=True, capture_output=True, timeout=30)
    return f"[server.tls]\ncert = {json.dumps(str(cert))}\nkey = {json.dumps(str(key))}\n"


@pytest.fixture(scope="module", params=["h2c", "h2"])
def loaded(request, run_folder):
    """A proxy that speaks HTTP/2 with prior knowledge, or by ALPN over TLS, in front of a simulated engine."""
    engine = SimulatedEngine(run_folder)
    try:
        tls = request.getfixturevalue("certificate") if request.param == "h2" else ""
        more = TIMEOUTS + tls
        proxy = Proxy(request.param, [engine], run_folder, policy="least_outstanding_tokens", more=more)
        proxy.scheme = "https" if tls else "http"
        # the first record opens its file
        h2load(proxy, body(run_folder, True), 1, 1, requests=1)
        wait_until(proxy.records, 10, "a first record")
        yield proxy
        proxy.stop()
    finally:
        engine.group.stop()


def h2load(proxy, body, connections, streams, requests=REQUESTS):
    """Its figures: requests by how they ended, statuses, bytes of answers' bodies."""
    command = [program("h2load", "nghttp2-client"), "-n", str(requests), "-c", str(connections), "-m", str(streams)]
    command += ["-d", str(body), "-H", "content-type: application/json"]
    url = f"{proxy.scheme}://{proxy.server[0]}:{proxy.server[1]}/v1/chat/completions"
    said = subprocess.run([*command, url], capture_output=True, text=True, timeout=60).stdout
    protocol = "h2c" if proxy.scheme == "http" else "h2"
    assert re.search(rf"^Application protocol: {protocol}$", said, re.MULTILINE), said
    counts = re.search(r"^requests: (.*)$", said, re.MULTILINE)[1] + ", "
    counts += re.search(r"^status codes: (.*)$", said, re.MULTILINE)[1]
    found = {name: int(count) for count, name in re.findall(r"(\d+) (\w+)", counts)}
    found["body bytes"] = int(re.search(r"\((\d+)\) data$", said, re.MULTILINE)[1])
    found["requests/s"] = float(re.search(r"([\d.]+) req/s", said)[1])
    return found


def body(folder, streamed):
    path = folder / f"{'streamed' if streamed else 'whole'}.json"
    messages = [{"role": "user", "content": "Which way is the tide?"}]
    path.write_text(json.dumps({"model": "tiny", "stream": streamed, "max_tokens": 20, "messages": messages}))
    return path


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
def test_every_request_is_answered_and_counted_once(loaded, shape, streamed, run_folder, figures):
    before, descriptors, known = counted(loaded), loaded.descriptors(), set(loaded.records())
    found = h2load(loaded, body(run_folder, streamed), *SHAPES[shape])
    name = f"h2load, {loaded.scheme}, {shape}, {'streamed' if streamed else 'whole'}"
    figures[name] = f"{found['requests/s']:.0f} requests/s, at most {loaded.memory_mib('VmHWM'):.0f} MiB so far"
    ended = {name: found[name] for name in ("total", "started", "done", "succeeded", "2xx")}
    assert set(ended.values()) == {REQUESTS}, found
    assert not any(found[name] for name in ("failed", "errored", "timeout", "3xx", "4xx", "5xx")), found
    assert_nothing_left(loaded, descriptors, 10)
    assert counted(loaded) - before == REQUESTS
    new = wait_until(lambda: records_beside(loaded, known), 10, f"{REQUESTS} records", every_s=0.1)
    assert len(new) == REQUESTS
    ends = {(one["outcome"], one["status"], one["streamed"], one["stamp"]) for one in new}
    assert ends == {("ok", 200, streamed, "stream")}
    assert sum(one["response_bytes"] for one in new) == found["body bytes"]
    assert all(one["complete"] for one in new)
    assert loaded.memory_mib("VmHWM") < 256


def counted(proxy):
    """Answers that the metrics have counted; all of them well."""
    every = proxy.metric("evenkeel_requests_total")
    assert proxy.metric("evenkeel_requests_total", outcome="ok") == every
    return every


def records_beside(proxy, known):
    """The records written since these were known, once there are enough."""
    records = proxy.records()
    new = [record for one, record in records.items() if one not in known]
    return new if len(new) >= REQUESTS else None


def test_memory_does_not_grow_from_run_to_run(loaded, run_folder, figures):
    held = []
    for _ in range(3):
        found = h2load(loaded, body(run_folder, True), *SHAPES["many connections"])
        assert found["2xx"] == REQUESTS, found
        held.append(loaded.memory_mib("VmRSS"))
    figures[f"h2load, {loaded.scheme}: MiB held after each of three runs"] = [round(mib, 1) for mib in held]
    assert held[-1] < held[0] + 24
