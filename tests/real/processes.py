"""Starting child processes in their own process group, and ending exactly those."""

import os
import re
import signal
import subprocess
import time
from pathlib import Path


class Group:
    """A child process, leader of its own process group, with its output in a file."""

    def __init__(self, command, log, env=None):
        self.log = Path(log)
        with open(self.log, "wb") as output:
            self.process = subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=env,
                start_new_session=True,
            )

    @property
    def pid(self):
        return self.process.pid

    def running(self):
        return self.process.poll() is None

    def tail(self, lines=30):
        """The end of the child's output, for a failure's message."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def wait_for(self, pattern, patience_s, what):
        """Waits until a line of the child's output matches; returns the match."""

        def found():
            assert self.running(), f"the child ended before it was seen that {what}:\n{self.tail()}"
            return re.search(pattern, self.log.read_text(errors="replace"), re.MULTILINE)

        return wait_until(found, patience_s, what)

    def descendants(self):
        """Every process below the child, with the title it gave itself."""
        return descendants(self.pid)

    def stop(self, patience_s=15):
        """Asks the child to end, then ends the whole group."""
        if self.running():
            self.process.terminate()
            try:
                self.process.wait(patience_s)
            except subprocess.TimeoutExpired:
                pass
        try:
            # The group keeps its number while any member lives, so this can reach no stranger.
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait(patience_s)


def descendants(pid):
    """Maps pid to command line for every process below `pid`."""
    parents, titles = {}, {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text()
            titles[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        parents[int(entry.name)] = int(stat.rsplit(")", 1)[1].split()[1])
    found, front = {}, [pid]
    while front:
        parent = front.pop()
        children = [child for child, of in parents.items() if of == parent]
        found.update({child: titles[child] for child in children})
        front.extend(children)
    return found


def make_realtime(pid, priority):
    """Puts every thread of a process, and all that it starts, before the machine's other work; the highest goes first."""
    for thread in os.listdir(f"/proc/{pid}/task"):
        os.sched_setscheduler(int(thread), os.SCHED_RR, os.sched_param(priority))


def wait_until(condition, patience_s, what, every_s=0.02):
    """Waits for `condition()` to be true and returns what it returned; fails with `what` when patience ends."""
    deadline = time.monotonic() + patience_s
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {patience_s} s: {what}")
        time.sleep(every_s)
