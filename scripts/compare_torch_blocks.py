"""Compares readings of PyTorch's blocks in a recording with the history of PyTorch's allocator.

    compare_torch_blocks.py RECORDING TRACE [--gpurec build/bin/gpurec] [--json FILE]
    compare_torch_blocks.py --self-test

RECORDING has rows of kind `block` (record --blocks-every). TRACE has a line [action, address, bytes, time_us, stream]
for each event since the first allocation (examples/workloads/history.py). The events are applied one by one. A reading
is equal if the blocks (address, requested size, state) and the segments are the same after some event, and this state
existed within 50 ms of the reading. The last line printed is a JSON object; --json writes it with all readings.
Exit status 1: a reading is wrong, more than 10 % are refused, or there are fewer than 20.
"""
import argparse
import array
import bisect
import collections
import itertools
import json
import re
import statistics
import subprocess
import sys
import tempfile

TOLERANCE_NS = 50_000_000
PAGE = 2 << 20  # expandable segments are mapped in multiples of it
ACTIONS = ["alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map", "segment_unmap", "snapshot", "oom"]
ALLOC, FREE_REQUESTED, FREE_COMPLETED, SEGMENT_ALLOC, SEGMENT_FREE, SEGMENT_MAP, SEGMENT_UNMAP = range(7)
NEW = (ALLOC, SEGMENT_ALLOC, SEGMENT_MAP)
STATES = ("allocated", "awaits_stream")
MAX_REFUSED = 0.1  # of the readings
MIN_READINGS = 20
EXAMPLES = 3
DUMP_SECONDS = 300


def hash_of(key, value):
    return hash((key, value)) & 0xFFFF_FFFF_FFFF_FFFF


def pages(address, size):
    """Returns the keys of the pages of a mapped range, or of the range itself if it is not made of pages."""
    if address % PAGE or size % PAGE:
        return [("range", address, size)]
    return [("page", a) for a in range(address, address + size, PAGE)]


class History:
    """The events of an allocator. State k is the one after the first k events, so state 0 is empty.

    Keys and values of a state: ("block", address): (requested bytes, state); ("segment", address): bytes;
    ("page", address): True.
    """

    def __init__(self, events):
        self.actions, self.addresses, self.sizes = array.array("B"), array.array("Q"), array.array("Q")
        self.times = array.array("q")  # Unix ns
        latest, numbers = 0, {action: n for n, action in enumerate(ACTIONS)}
        for action, address, size, time_us, *_ in events:
            latest = max(latest, time_us * 1000)
            self.actions.append(numbers.get(action, len(ACTIONS)))
            self.addresses.append(address)
            self.sizes.append(size)
            self.times.append(latest)
        self.contradictions = 0  # allocations of what exists, and frees of what does not
        self.hash_states()

    def changes(self, n):
        """Returns the keys that event n changes, and the new value. None removes a key."""
        action, address, size = self.actions[n], self.addresses[n], self.sizes[n]
        if action == ALLOC:
            return [("block", address)], (size, STATES[0])
        if action == FREE_REQUESTED:
            return [("block", address)], (size, STATES[1])
        if action == FREE_COMPLETED:
            return [("block", address)], None
        if action in (SEGMENT_ALLOC, SEGMENT_FREE):
            return [("segment", address)], size if action == SEGMENT_ALLOC else None
        if action in (SEGMENT_MAP, SEGMENT_UNMAP):
            return pages(address, size), True if action == SEGMENT_MAP else None
        return [], None

    def hash_states(self):
        """Computes the hashes of the blocks and the segments of each state."""
        self.block_hashes, self.segment_hashes = array.array("Q", [0]), array.array("Q", [0])
        live, blocks, segments = {}, 0, 0
        for n, action in enumerate(self.actions):
            keys, value = self.changes(n)
            for key in keys:
                change = hash_of(key, live[key]) if key in live else 0
                self.contradictions += (key in live) == (action in NEW)
                if value is None:
                    live.pop(key, None)
                else:
                    live[key] = value
                    change ^= hash_of(key, value)
                if action <= FREE_COMPLETED:
                    blocks ^= change
                else:
                    segments ^= change
            self.block_hashes.append(blocks)
            self.segment_hashes.append(segments)

    def find_states(self, begin_ns, end_ns):
        """Returns the first and last state that existed between two times."""
        return bisect.bisect_left(self.times, begin_ns), bisect.bisect_right(self.times, end_ns)

    def distance_ns(self, state, begin_ns, end_ns):
        """Returns the time between a state and an interval: 0 if they overlap, negative if the state was earlier."""
        if state < len(self.times) and self.times[state] < begin_ns:
            return self.times[state] - begin_ns
        if state > 0 and self.times[state - 1] > end_ns:
            return self.times[state - 1] - end_ns
        return 0

    def is_inside_call(self, state):
        """Reports whether a state may exist only inside of a call of the allocator."""
        if state == 0 or state == len(self.actions):
            return False
        last, following = self.actions[state - 1], self.actions[state]
        if last == FREE_REQUESTED and following == FREE_COMPLETED:
            return self.addresses[state - 1] == self.addresses[state]
        return last in (SEGMENT_ALLOC, SEGMENT_MAP)

    def nearest(self, want, first, last):
        """Returns the number of keys that differ from the most similar state, this state, and its number."""
        live = {}
        for n in range(first):
            self.apply(n, live)
        different = sum(live.get(key) != want.get(key) for key in live.keys() | want.keys())
        best = different, dict(live), first
        for n in range(first, last):
            keys, _ = self.changes(n)
            different -= sum(live.get(key) != want.get(key) for key in keys)
            self.apply(n, live)
            different += sum(live.get(key) != want.get(key) for key in keys)
            if different < best[0]:
                best = different, dict(live), n + 1
        return best

    def apply(self, n, live):
        keys, value = self.changes(n)
        for key in keys:
            if value is None:
                live.pop(key, None)
            else:
                live[key] = value


class Reading:
    """A reading of all blocks: the rows with equal time, applied to the reading before."""

    def __init__(self, rows, before):
        first = rows[0]
        self.at_ns, self.dur_ns = first.get("start_ns", 0), first.get("dur_ns", 0)
        self.refused, self.error, self.read_bytes = None, None, 0
        self.blocks, self.segments = {}, {}  # address: (bytes, requested, state), address: (bytes, name)
        head = next((r for r in rows if r["name"] in ("read", "refused")), None)
        if head is None:
            self.error = "the reading has no row read"
            return
        if head["name"] == "refused":
            self.refused = head.get("message", "")
            return
        self.read_bytes = head.get("bytes", 0)
        if head.get("message") != "all":
            if before is None:
                self.error = "no reading before this one has all blocks"
                return
            self.blocks, self.segments = dict(before.blocks), dict(before.segments)
        self.add(rows)
        self.check(head)

    def add(self, rows):
        for r in rows:
            if r["name"] == "block_gone" and self.blocks.pop(r["ptr"], None) is None:
                self.error = f"block_gone of an unknown block {r['ptr']:#x}"
            if r["name"] == "segment_gone" and self.segments.pop(r["ptr"], None) is None:
                self.error = f"segment_gone of an unknown segment {r['ptr']:#x}"
        for r in rows:
            if r["name"] in STATES:
                self.blocks[r["ptr"]] = r["bytes"], int(r.get("value", 0)), r["name"]
            if r["name"] in ("segment", "mapped_range"):
                self.segments[r["ptr"]] = r["bytes"], r["name"]

    def check(self, head):
        """Compares the sums of the rows with the totals in the first one."""
        sums = {
            "value": ("blocks", len(self.blocks)),
            "allocated_bytes": ("allocated bytes", sum(size for size, _, state in self.blocks.values() if state == STATES[0])),
            "reserved_bytes": ("reserved bytes", sum(size for size, _ in self.segments.values())),
        }
        for key, (what, ours) in sums.items():
            if self.error is None and head.get(key, 0) != ours:
                self.error = f"{ours} {what} by the rows, the row read has {head.get(key, 0)}"

    def items(self):
        """Returns the keys and values of the same state in a History."""
        found = {("block", a): (requested, state) for a, (_, requested, state) in self.blocks.items()}
        for address, (size, name) in self.segments.items():
            if name == "segment":
                found["segment", address] = size
            else:
                found.update((page, True) for page in pages(address, size))
        return found


FIELD = re.compile(r' (\w+)=("(?:[^"\\]|\\.)*"|\S*)')
TEXTS = ("name", "message", "memory_kind")


def parse_row(line):
    """Returns the columns of a line of gpurec dump."""
    row = {"name": ""}
    for key, text in FIELD.findall(line):
        if key in TEXTS:
            row[key] = text.strip('"').replace('\\"', '"')
        elif key == "value":
            row[key] = float(text)
        elif re.fullmatch(r"-?(0x[0-9a-f]+|\d+)", text):
            row[key] = int(text, 0)
    return row


def read_readings(lines, device=0):
    """Returns the readings of a device in the output of gpurec dump, in order of time. Refusals of all devices count."""
    groups = collections.defaultdict(list)
    for line in lines:
        if line.startswith("block "):
            row = parse_row(line)
            if row.get("device", 0) in (device, -1):
                groups[row.get("start_ns", 0)].append(row)
    readings, before = [], None
    for _, rows in sorted(groups.items()):
        reading = Reading(rows, before)
        readings.append(reading)
        if reading.refused is None:
            before = reading
    return readings


def read_events(lines):
    """Yields the events of a trace. It parses many lines at once, which is faster."""
    while chunk := list(itertools.islice(lines, 10_000)):
        yield from json.loads("[" + ",".join(chunk) + "]")


class Comparison:
    """Compares readings with a history, and counts the results."""

    def __init__(self, history, readings):
        self.history, self.readings = history, readings
        self.equal, self.refused, self.wrong, self.examples, self.raw = 0, [], 0, [], []
        self.distances, self.inside = [], 0
        for reading in readings:
            self.judge(reading)

    def judge(self, reading):
        states, distance = [], None
        if reading.refused is not None:
            verdict = "refused"
            self.refused.append(reading.refused)
        else:
            states = self.equal_states(reading) if reading.error is None else []
            verdict = "equal" if states else "wrong"
        if verdict == "equal":
            self.equal += 1
            begin, end = reading.at_ns, reading.at_ns + reading.dur_ns
            distance = min((self.history.distance_ns(k, begin, end) for k in states), key=abs)
            self.distances.append(abs(distance))
            self.inside += all(self.history.is_inside_call(k) for k in states)
        elif verdict == "wrong":
            self.wrong += 1
            if len(self.examples) < EXAMPLES:
                self.examples.append(reading.error or self.explain(reading))
        self.raw.append([reading.at_ns, reading.dur_ns, len(reading.blocks), verdict, distance, len(states)])

    def window(self, reading):
        return self.history.find_states(reading.at_ns - TOLERANCE_NS, reading.at_ns + reading.dur_ns + TOLERANCE_NS)

    def hashes(self, reading):
        """Returns the hashes of the blocks and the segments of a reading."""
        blocks = segments = 0
        for key, value in reading.items().items():
            if key[0] == "block":
                blocks ^= hash_of(key, value)
            else:
                segments ^= hash_of(key, value)
        return blocks, segments

    def equal_states(self, reading):
        first, last = self.window(reading)
        blocks, segments = self.hashes(reading)
        h = self.history
        return [k for k in range(first, last + 1) if h.block_hashes[k] == blocks and h.segment_hashes[k] == segments]

    def explain(self, reading):
        """Describes how a reading differs from the most similar state near its time."""
        h, want = self.history, reading.items()
        count, state, k = h.nearest(want, *self.window(reading))
        keys = sorted(key for key in want.keys() | state.keys() if want.get(key) != state.get(key))
        blocks = sum(key[0] == "block" for key in keys)
        distance = h.distance_ns(k, reading.at_ns, reading.at_ns + reading.dur_ns) / 1e6
        some = "; ".join(f"{key[0]} {key[1]:#x}: gpurec {want.get(key)}, PyTorch {state.get(key)}" for key in keys[:4])
        return (f"reading at {reading.at_ns}: {blocks} of {len(reading.blocks)} blocks and {count - blocks} pages or segments differ "
                f"from the nearest state, {distance:+.1f} ms away; {self.describe_elsewhere(reading)}{some}")

    def describe_elsewhere(self, reading):
        """Describes the nearest equal state of the whole history."""
        h, (blocks, segments) = self.history, self.hashes(reading)
        found = [k for k, value in enumerate(h.block_hashes) if value == blocks and h.segment_hashes[k] == segments]
        if not found:
            return ""
        times = [h.distance_ns(k, reading.at_ns, reading.at_ns + reading.dur_ns) for k in found]
        return f"equal to {len(found)} states of other times, the nearest {min(times, key=abs) / 1e6:+.1f} ms away; "

    def result(self):
        accepted = [r for r in self.readings if r.refused is None]
        times = sorted(r.dur_ns / 1e6 for r in accepted) or [0]
        counts = [len(r.blocks) for r in accepted] or [0]
        awaiting = sum(any(state == STATES[1] for *_, state in r.blocks.values()) for r in accepted)
        return {
            "readings": len(self.readings), "equal": self.equal, "refused": len(self.refused), "wrong": self.wrong,
            "blocks": [min(counts), max(counts)], "segments": [f(len(r.segments) for r in accepted) for f in (min, max)] if accepted else [0, 0],
            "readings_with_awaiting_blocks": awaiting, "equal_only_inside_a_call": self.inside,
            "read_ms": [round(f(times), 3) for f in (min, statistics.median, max)],
            "median_read_bytes": statistics.median([r.read_bytes for r in accepted] or [0]),
            "farthest_ms": max(self.distances, default=0) / 1e6,
            "events": len(self.history.actions), "contradictions": self.history.contradictions,
            "refusals": collections.Counter(self.refused).most_common(EXAMPLES), "examples": self.examples,
        }


def has_passed(result):
    n = result["readings"]
    return n >= MIN_READINGS and result["wrong"] == 0 and result["contradictions"] == 0 and result["refused"] <= MAX_REFUSED * n


def self_test():
    """Tests with a made-up history: two blocks, one of them freed in two parts, and mapped pages."""
    events = [
        ["segment_alloc", PAGE, PAGE, 1000, 0], ["alloc", PAGE, 100, 1001, 0], ["alloc", PAGE + 512, 700, 200_000, 0],
        ["free_requested", PAGE, 100, 300_000, 0], ["segment_map", 4 * PAGE, 2 * PAGE, 399_999, 0],
        ["alloc", 4 * PAGE, 5 << 19, 400_000, 0], ["free_completed", PAGE, 100, 500_000, 0],
    ]
    h = History(events)
    assert h.contradictions == 0 and History(events[3:4]).contradictions == 1 and History(events[:2] + events[1:2]).contradictions == 1
    head = "block pid=7 memory_kind=torch "

    def rows(at_us, tail, *lines):
        common = f" start_ns={at_us * 1000} dur_ns=1000"
        return [head + line + common for line in ("name=read " + tail, *lines)]

    segment = f"name=segment ptr={PAGE:#x} bytes={PAGE} message=small"
    first = f"name=allocated ptr={PAGE:#x} bytes=512 value=100"
    second = f"name=allocated ptr={PAGE + 512:#x} bytes=1024 value=700"
    lines = rows(250_000, f"value=2 message=all allocated_bytes=1536 reserved_bytes={PAGE}", segment, first, second)
    lines += rows(350_000, f"value=2 allocated_bytes=1024 reserved_bytes={PAGE}", first.replace("allocated", "awaits_stream"))
    lines += [head + 'name=refused start_ns=370000000 message="the allocator did not pause"']
    lines += rows(450_000, f"value=3 allocated_bytes={1024 + (3 << 20)} reserved_bytes={3 * PAGE}",
                  f"name=mapped_range ptr={4 * PAGE:#x} bytes={2 * PAGE}", f"name=allocated ptr={4 * PAGE:#x} bytes={3 << 20} value={5 << 19:e}")
    lines += rows(600_000, f"value=2 allocated_bytes={1024 + (3 << 20)} reserved_bytes={3 * PAGE}", f"name=block_gone ptr={PAGE:#x}")

    def compare(changed):
        return Comparison(h, read_readings(["# a head", "launch name=block", *changed])).result()

    result = compare(lines)
    assert [result[key] for key in ("readings", "equal", "refused", "wrong")] == [5, 4, 1, 0], result
    assert result["readings_with_awaiting_blocks"] == 2 and result["farthest_ms"] == 0 and result["equal_only_inside_a_call"] == 0
    assert not has_passed(result) and has_passed({**result, "readings": 20})
    assert not has_passed({**result, "readings": 20, "refused": 3}) and not has_passed({**result, "readings": 20, "wrong": 1})

    # A block is missing in all readings: the totals of the rows say so, or only the history does.
    result = compare([line for line in lines if second not in line])
    assert result["wrong"] == 4 and "1 blocks by the rows" in result["examples"][0], result
    alone = rows(260_000, f"value=1 message=all allocated_bytes=512 reserved_bytes={PAGE}", segment, first)
    result = compare(alone)
    assert result["wrong"] == 1 and "1 of 1 blocks and 0 pages" in result["examples"][0], result
    assert "equal to 1 states of other times, the nearest -60.0 ms away" in result["examples"][0], result
    # The state before the free is too old: another state, another time, another size, or a missing segment is wrong.
    result = compare(lines[:4] + rows(360_000, f"value=2 allocated_bytes=1536 reserved_bytes={PAGE}"))
    assert result["wrong"] == 1 and "'allocated'), PyTorch (100, 'awaits_stream')" in result["examples"][0], result
    assert compare([line.replace("start_ns=250000000", "start_ns=100000000") for line in lines[:4]])["wrong"] == 1
    assert compare([line.replace("start_ns=250000000", "start_ns=160000000") for line in lines[:4]])["farthest_ms"] == 39.999
    assert compare([line.replace("value=100", "value=101") for line in lines[:4]])["wrong"] == 1
    assert "no reading before" in compare(lines[4:6])["examples"][0]
    result = compare([line.replace(f"ptr={PAGE:#x} bytes={PAGE}", f"ptr={3 * PAGE:#x} bytes={PAGE}") for line in lines[:4]])
    assert "0 of 2 blocks and 2 pages or segments" in result["examples"][0], result
    assert h.is_inside_call(1) and h.is_inside_call(5) and not h.is_inside_call(4)
    torn = History(events[:4] + [["free_completed", PAGE, 100, 300_001, 0]])
    assert torn.is_inside_call(4) and Comparison(torn, read_readings(lines[:6])).result()["equal_only_inside_a_call"] == 1
    assert list(read_events(iter(json.dumps(e) + "\n" for e in events))) == events
    assert parse_row(r'block name=refused message="a \"b\" c"')["message"] == 'a "b" c'


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recording", nargs="?")
    parser.add_argument("trace", nargs="?")
    parser.add_argument("--gpurec", default="build/bin/gpurec")
    parser.add_argument("--json")
    parser.add_argument("--self-test", action="store_true")
    options = parser.parse_args()
    if options.self_test:
        self_test()
        print("self-test passed")
        return 0
    if not options.trace:
        parser.error("RECORDING and TRACE are required")
    with tempfile.TemporaryFile("w+") as text:
        subprocess.run([options.gpurec, "dump", options.recording], stdout=text, check=True, timeout=DUMP_SECONDS)
        text.seek(0)
        readings = read_readings(text)
    with open(options.trace) as lines:
        history = History(read_events(lines))
    comparison = Comparison(history, readings)
    result = comparison.result()
    if options.json:
        with open(options.json, "w") as f:
            json.dump({**result, "raw": comparison.raw}, f)
    print(json.dumps(result))
    return 0 if has_passed(result) else 1


if __name__ == "__main__":
    sys.exit(main())
