"""When bytes crossed the loopback: a packet capture of some ports, read as HTTP/1.1 exchanges with event streams.

The kernel stamps a packet when it is sent, before the receiver is woken. Capturing takes root or the right to capture.
"""

import json
import re
import shutil
import subprocess
import uuid
from collections import namedtuple
from pathlib import Path

from processes import Group, wait_until
from raw_client import Dechunker, connect

BUFFER_MIB = 64
FIELDS = ["frame.time_epoch", "tcp.stream", "tcp.srcport", "tcp.seq", "tcp.len", "tcp.payload"]

Packet = namedtuple("Packet", "time_s stream source seq length payload")


def missing():
    """What keeps this machine from capturing, with the remedy; None if nothing does."""
    for program in ("dumpcap", "tshark"):
        if not shutil.which(program):
            return f"{program} is missing; install it with: apt-get install tshark"
    listed = subprocess.run(["dumpcap", "-i", "lo", "-L"], capture_output=True, text=True)
    if listed.returncode != 0:
        return f"no right to capture on lo (root has it): {listed.stderr.strip()}"
    return None


class Capture:
    """dumpcap on the loopback, from start to `stop`; only packets of these ports."""

    def __init__(self, folder, ports):
        assert missing() is None, missing()
        self.file = Path(folder) / "capture.pcapng"
        self.ports = ports
        wanted = " or ".join(f"tcp port {port}" for port in ports)
        command = ["dumpcap", "-q", "-i", "lo", "-B", BUFFER_MIB, "-f", wanted, "-w", self.file]
        self.group = Group(command, Path(folder) / "dumpcap.log")
        # dumpcap names its file once it captures
        self.group.wait_for("File: ", 20, "dumpcap captures; it takes root or the right to capture")

    def stop(self):
        """Ends the capture once all before is in its file; one that lost packets is no measure of anything."""
        last = f"GET /{uuid.uuid4()} ".encode()
        with connect(("127.0.0.1", self.ports[0])) as sock:
            sock.sendall(last)
            wait_until(lambda: last in self.tail(), 20, "the capture's file has the last packet")
        self.group.stop()
        counts = re.search(r"received/dropped on interface.*: (\d+)/(\d+)", self.group.log.read_text())
        assert counts, f"dumpcap told no counts:\n{self.group.tail()}"
        assert int(counts[2]) == 0, f"the capture lost {counts[2]} packets of {counts[1]}"

    def tail(self):
        """The end of the file."""
        with open(self.file, "rb") as file:
            file.seek(max(self.file.stat().st_size - 65536, 0))
            return file.read()

    def packets(self):
        """All packets with data, in order of time."""
        command = ["tshark", "-r", self.file, "-n", "-T", "fields", "-E", "separator=/t", "-Y", "tcp.len > 0"]
        # TCP alone: its payload is wanted as it is
        command += ["--disable-protocol", "http", *(word for name in FIELDS for word in ("-e", name))]
        lines = subprocess.run(command, capture_output=True, check=True, text=True).stdout.splitlines()
        for line in lines:
            time, stream, source, seq, length, payload = line.split("\t")
            yield Packet(float(time), int(stream), int(source), int(seq), int(length), bytes.fromhex(payload))


class Exchange:
    """One request and its answer as the packets tell them. Times in seconds of the capture's clock."""

    def __init__(self):
        self.request_first_s = self.request_last_s = None
        self.request_id = None
        # when the packet was sent that completes the event, for every event with output
        self.output_s = []
        self.done = False
        self._request, self._head, self._body = b"", b"", b""
        self._dechunker = None

    @property
    def sent(self):
        return self.request_id is not None

    def request(self, packet):
        if self.request_first_s is None:
            self.request_first_s = packet.time_s
        self._request += packet.payload
        head, separator, body = self._request.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
        if separator and len(body) >= int(length[1]):
            self.request_last_s = packet.time_s
            self.request_id = re.search(rb"(?i)\r\nx-request-id: *(\S+)", head)[1].decode()

    def answer(self, packet):
        data = packet.payload
        if self._dechunker is None:
            self._head += data
            _, separator, data = self._head.partition(b"\r\n\r\n")
            if not separator:
                return
            self._dechunker = Dechunker()
        *events, self._body = (self._body + self._dechunker.feed(data)).split(b"\n\n")
        self.output_s += [packet.time_s for event in events if carries_output(event)]
        self.done = self._dechunker.done


def carries_output(event):
    data = event.removeprefix(b"data: ")
    return data != b"[DONE]" and bool(json.loads(data)["choices"][0]["delta"]["content"])


def exchanges(packets, port):
    """The exchanges with the server at `port`, by request id."""
    open_by_stream, next_seq, found = {}, {}, {}
    for packet in packets:
        one = open_by_stream.get(packet.stream)
        answering = packet.source == port
        side = packet.stream, packet.source
        expected = next_seq.get(side, packet.seq)
        if packet.seq + packet.length <= expected:
            continue  # sent again
        assert packet.seq == expected, f"the capture misses bytes of stream {packet.stream}"
        next_seq[side] = packet.seq + packet.length
        if one is None or one.done:
            one = open_by_stream[packet.stream] = Exchange()
        if not answering:
            one.request(packet)
            if one.sent:
                found[one.request_id] = one
        else:
            one.answer(packet)
    return found
