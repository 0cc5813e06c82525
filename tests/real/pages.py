"""A report made by the real binary, and the browser that opens it."""

import shutil
import subprocess

from proxy import binary

# Nothing but the page itself may make it speak to anybody.
QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

PLAN = """
name = "browser <script>alert(1)</script> & test"
seed = 7
objectives = ["ttft:1500", "tpot:80"]
attainment = 0.95
gpu_hour_price = { amount = 2.0, currency = "USD" }
[fleet]
kind = "simulated"
profile = "demo-small"
[matrix]
instances = [1, 2, 4]
[timing]
warm_up_s = 1
duration_s = 10
trim_s = 1
look_every_s = 0.5
[online]
concurrency = [4, 8, 16]
rate_per_s = [4]
lengths = ["chat"]
[offline]
batch_requests = [20]
lengths = ["chat"]
[mixed]
concurrency = [8]
batch_concurrency = 4
lengths = ["chat"]
batch_lengths = "chat"
[length_sets.chat]
classes = [
    { name = "short", share = 40, prompt_tokens = 100, output_tokens = 20, spread = 0.5 },
    { name = "medium", share = 60, prompt_tokens = 700, output_tokens = 30, spread = 0.3 },
]
"""


def chromium():
    """The browser's program, or a failure that says how to get it."""
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert path, "Chromium is missing; install it with: apt-get install chromium fonts-dejavu-core (or: tests/real/install browser)"
    return path


def make_report(folder):
    """Runs a plan in virtual time and makes its report; returns the page, the JSON file and what the terminal said."""
    plan, study = folder / "plan.toml", folder / "study"
    plan.write_text(PLAN)
    evenkeel("sweep", plan, "--simulate", "--out", study)
    page, numbers = folder / "report.html", folder / "report.json"
    said = evenkeel("report", study, "--out", page, "--json", numbers)
    return page, numbers, said


def evenkeel(*words):
    command = [str(binary()), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout
