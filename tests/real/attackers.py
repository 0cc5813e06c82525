"""What the tests with foreign load generators share: finding the programs, and what must be left after them."""

import shutil

import pytest

from conftest import assert_no_load
from processes import wait_until


def program(name, package):
    """The program's path; without it the test fails and says how to get it."""
    found = shutil.which(name)
    if not found:
        pytest.fail(f"{name} is missing; install it with: apt-get install {package}")
    return found


def assert_nothing_left(proxy, descriptors, patience_s):
    """No connection, no load, no socket is left of what came and went since `descriptors` were counted."""
    wait_until(lambda: proxy.metric("evenkeel_open_connections") == 0, patience_s, "all client connections are closed")
    assert_no_load(proxy)
    wait_until(
        lambda: proxy.descriptors() <= descriptors, patience_s, f"no more than {descriptors} descriptors are open"
    )
    assert proxy.metric("evenkeel_stale_finishes_total") == 0
