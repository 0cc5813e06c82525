"""What the tests share: two real engines, proxies in front of them, and the figures they report."""

import json
import os

import anthropic
import openai
import pytest

from engines import HOME, Engine
from processes import make_realtime, wait_until
from proxy import Proxy

FIGURES = {}


def pytest_collection_modifyitems(items):
    """Tests that end an engine run after all others."""
    items.sort(key=lambda item: item.get_closest_marker("last") is not None)


def pytest_terminal_summary(terminalreporter):
    if not FIGURES:
        return
    terminalreporter.section("figures")
    for name, value in FIGURES.items():
        terminalreporter.write_line(f"{name}: {value}")
    (HOME / "figures.json").write_text(json.dumps(FIGURES, indent=1) + "\n")


@pytest.fixture(scope="session")
def figures():
    """Measured figures that are worth reading although no bar stands on them."""
    return FIGURES


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("real")


@pytest.fixture(scope="session")
def engines(folder):
    """Two vLLM servers with the same weights: `a` as it comes, `b` with a parser for tool calls."""
    pair = []
    try:
        pair.append(Engine("a", folder))
        pair.append(Engine("b", folder, ["--enable-auto-tool-choice", "--tool-call-parser", "hermes"]))
        for engine in pair:
            engine.wait_ready()
        if os.environ.get("EVENKEEL_TEST_REALTIME"):
            take_the_machine(pair)
        yield pair
    finally:
        for engine in pair:
            engine.stop()


@pytest.fixture(scope="session")
def start_proxy(folder):
    """Starts proxies; every one of them must hold no load when all tests have ended."""
    started = []

    def start(name, *arguments, **settings):
        started.append(Proxy(name, *arguments, folder=folder, **settings))
        return started[-1]

    yield start
    try:
        for one in started:
            assert_no_load(one)
    finally:
        for one in started:
            one.stop()


@pytest.fixture(scope="session")
def proxy(engines, start_proxy):
    """Evenkeel in front of both engines."""
    return start_proxy("both", engines)


@pytest.fixture(scope="session")
def only_a(engines, start_proxy):
    return start_proxy("only-a", engines[:1])


@pytest.fixture(scope="session")
def only_b(engines, start_proxy):
    return start_proxy("only-b", engines[1:])


@pytest.fixture(scope="session")
def openai_at():
    """An OpenAI client for a base URL. It never retries: a retry would hide a failure."""
    return lambda url: openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=60)


@pytest.fixture(scope="session")
def anthropic_at():
    return lambda url: anthropic.Anthropic(base_url=url, api_key="none", max_retries=0, timeout=60)


def take_the_machine(engines):
    """On a machine that also does other work, times would tell of that work. The computing goes last, as it would
    for a scheduler that favours what sleeps much; proxies inherit the priority of this process."""
    for engine in engines:
        for pid in engine.group.descendants():
            make_realtime(pid, 1)
        make_realtime(engine.group.pid, 2)
    make_realtime(os.getpid(), 3)


def assert_no_load(proxy):
    """Outstanding requests and tokens are exactly 0 on every instance, at most a second after the last answer."""
    wait_until(
        lambda: all(load == (0, 0) for load in proxy.outstanding().values()),
        1,
        f"no load left at {proxy.url}, last seen {proxy.outstanding()}",
    )
