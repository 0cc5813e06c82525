"""Evenkeel's stamps against a packet capture, in small; `benches/meter/run` is the measurement.

How late a reader is woken is the machine's affair, so the bars are wide where waking is part of the figure.
"""

import pytest

import packets
import stamp_check

STREAMS, EVENTS, GAP_S = 20, 100, 0.01


@pytest.fixture(scope="module", params=["read", "kernel"])
def arrival(request):
    return request.param


@pytest.fixture(scope="module")
def found(arrival, tmp_path_factory, figures):
    missing = packets.missing()
    if missing:
        pytest.fail(missing)
    found = stamp_check.run(tmp_path_factory.mktemp("stamps"), STREAMS, EVENTS, GAP_S, arrival)
    for kind, values in found.items():
        for name, share in ("P50", 0.5), ("P99", 0.99):
            figures[f"arrival = {arrival}: {kind} stamp less packet, us, {name}"] = round(stamp_check.quantile(values, share), 1)
    return found


@pytest.mark.parametrize("kind", ["request went", "hand-over"])
def test_what_evenkeel_sends_is_stamped_when_its_packet_goes_out(found, kind):
    assert abs(stamp_check.quantile(found[kind], 0.5)) < 100


def test_an_arrival_is_stamped_after_its_packet_and_soon(arrival, found):
    assert len(found["arrival"]) == STREAMS * EVENTS
    assert stamp_check.quantile(found["arrival"], 0.01) > -100
    # the kernel stamps before it wakes anyone; the tail is the machine's, and `benches/meter/run` measures it
    assert stamp_check.quantile(found["arrival"], 0.5) < {"read": 1000, "kernel": 20}[arrival]


def test_chunks_have_a_hand_over(found):
    assert len(found["hand-over"]) == len(found["arrival"]), "those of a stream's last read too"
