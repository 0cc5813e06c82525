"""Runs the cells and prints their tables. See `run`; the work is in tests/real/stamp_check.py."""

import sys
import tempfile

import packets
import stamp_check

# streams, events of each, seconds between two events of a stream
CELLS = {"unloaded": (20, 500, 0.01), "loaded": (1000, 60, 0.1)}
ARRIVALS = ("read", "kernel")


def stolen_and_all():
    """CPU time that the hypervisor gave to others, and all CPU time, in ticks since boot."""
    with open("/proc/stat") as file:
        ticks = [int(word) for word in file.readline().split()[1:9]]
    return ticks[7], sum(ticks)


def main(names):
    unknown = [name for name in names if name not in CELLS]
    wrong = f"no cell is called {unknown[0]}; there are {', '.join(CELLS)}" if unknown else packets.missing()
    if wrong:
        sys.exit(wrong)
    for name in names or CELLS:
        streams, events, gap_s = CELLS[name]
        print(f"\n{name}: {streams} streams, {events} events each, {gap_s * 1000:.0f} ms apart")
        for arrival in ARRIVALS:
            show(f'measure.arrival = "{arrival}"', stamp_check.run, *CELLS[name], arrival)
        show("without a proxy", stamp_check.run_bare, *CELLS[name])


def show(title, run, *cell):
    """One run and its table."""
    before = stolen_and_all()
    with tempfile.TemporaryDirectory() as folder:
        found = run(folder, *cell)
    stolen, ticks = (now - then for now, then in zip(stolen_and_all(), before))
    print(f"{title}; {100 * stolen / ticks:.0f} % of the CPU time was stolen")
    print(stamp_check.table(found), flush=True)


main(sys.argv[1:])
