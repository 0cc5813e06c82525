"""The admin listener's /metrics, as Prometheus's own tool reads it."""

import subprocess

from bodies import chat
from engines import HOME
from raw_client import exchange


def test_promtool_finds_nothing_to_complain_of(proxy):
    assert exchange(proxy.server, "/v1/chat/completions", chat(8, usage=True)).status == 200
    assert exchange(proxy.server, "/v1/chat/completions", chat() | {"model": "nope"}).status == 404
    status, text = proxy.get_admin("/metrics")
    assert status == 200
    checked = subprocess.run(
        [HOME / "promtool/promtool", "check", "metrics"], input=text, capture_output=True, text=True, timeout=30
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")
    names = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE ")}
    assert names and all(name.startswith("evenkeel_") for name in names), names


def test_metrics_are_not_on_the_data_listener(proxy):
    assert exchange(proxy.server, "/metrics", None, method="GET").status == 404
