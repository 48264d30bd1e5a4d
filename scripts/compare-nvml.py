"""Compares the NVML samples of a recording with the output of nvidia-smi; see compare-nvml.sh."""
import bisect
import json
import re
import subprocess
import sys

MIB = 1 << 20

# (nvidia-smi field, gpurec metric, factor from the unit of the field to that of the metric, tolerance
# in the unit of the metric). The tolerance applies in addition to changes during the nvidia-smi
# call.
FIELDS = [
    ("utilization.gpu", "gpu_utilization_percent", 1, 5),
    ("utilization.memory", "memory_utilization_percent", 1, 5),
    ("utilization.encoder", "encoder_utilization_percent", 1, 1),
    ("utilization.decoder", "decoder_utilization_percent", 1, 1),
    ("utilization.jpeg", "jpeg_utilization_percent", 1, 1),
    ("utilization.ofa", "ofa_utilization_percent", 1, 1),
    ("memory.total", "memory_total_bytes", MIB, MIB),
    ("memory.used", "memory_used_bytes", MIB, MIB),
    ("memory.free", "memory_free_bytes", MIB, MIB),
    ("memory.reserved", "memory_reserved_bytes", MIB, MIB),
    ("power.draw", "power_milliwatts", 1000, 5000),
    ("power.draw.average", "power_average_milliwatts", 1000, 5000),
    ("power.draw.instant", "power_instant_milliwatts", 1000, 20000),
    ("enforced.power.limit", "power_limit_milliwatts", 1000, 10),
    ("temperature.gpu", "temperature_celsius", 1, 1),
    ("temperature.memory", "memory_temperature_celsius", 1, 1),
    ("fan.speed", "fan_speed_percent", 1, 2),
    ("clocks.sm", "sm_clock_mhz", 1, 15),
    ("clocks.mem", "memory_clock_mhz", 1, 15),
    ("clocks.gr", "graphics_clock_mhz", 1, 15),
    ("clocks.video", "video_clock_mhz", 1, 15),
    ("clocks.applications.graphics", "application_graphics_clock_mhz", 1, 0),
    ("clocks.applications.memory", "application_memory_clock_mhz", 1, 0),
    ("clocks_event_reasons.active", "clock_event_reasons", 1, 0),
    ("pstate", "performance_state", 1, 0),
    ("pcie.link.gen.current", "pcie_link_generation", 1, 0),
    ("pcie.link.width.current", "pcie_link_width_lanes", 1, 0),
    ("ecc.errors.corrected.volatile.total", "ecc_corrected_volatile_errors", 1, 0),
    ("ecc.errors.uncorrected.volatile.total", "ecc_uncorrected_volatile_errors", 1, 0),
    ("ecc.errors.corrected.aggregate.total", "ecc_corrected_aggregate_errors", 1, 0),
    ("ecc.errors.uncorrected.aggregate.total", "ecc_uncorrected_aggregate_errors", 1, 0),
    ("retired_pages.single_bit_ecc.count", "retired_pages_single_bit", 1, 0),
    ("retired_pages.double_bit.count", "retired_pages_double_bit", 1, 0),
    ("encoder.stats.sessionCount", "encoder_sessions", 1, 0),
    ("encoder.stats.averageFps", "encoder_frames_per_second", 1, 0),
    ("encoder.stats.averageLatency", "encoder_latency_microseconds", 1, 0),
]
SLACK_NS = 1_200_000_000  # gpurec samples slow metrics once a second
FIELD = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*"|\S+)')


def known():
    """Returns the FIELDS that this nvidia-smi supports. A query with an unsupported field fails."""
    help_text = subprocess.run(["nvidia-smi", "--help-query-gpu"], check=True, capture_output=True, text=True).stdout
    names = set(re.findall(r'"([\w.]+)"', help_text))
    return [f for f in FIELDS if f[0] in names]


def number(text):
    """Returns a value of nvidia-smi as a number, or None if the device does not support it."""
    text = text.strip()
    if re.fullmatch(r"P\d+", text):
        return float(text[1:])
    if text.startswith("0x"):
        return float(int(text, 16))
    try:
        return float(text)
    except ValueError:
        return None


def recorded(path):
    """Returns the recorded samples by (GPU uuid, metric, pid), in order of time."""
    uuids, samples = {}, {}
    with open(path) as lines:
        for line in lines:
            kind, _, rest = line.partition(" ")
            if kind not in ("device", "nvml"):
                continue
            row = {k: json.loads(v) if v.startswith('"') else v for k, v in FIELD.findall(rest)}
            if kind == "device":
                uuids[row.get("device", "0")] = json.loads(row["message"])["uuid"]
                continue
            key = (uuids.get(row.get("device", "0")), row["name"], int(row.get("pid", 0)))
            samples.setdefault(key, []).append((int(row["start_ns"]), float(row.get("value", 0))))
    for values in samples.values():
        values.sort()
    return samples


def compare(smi, dump):
    samples = recorded(dump)
    fields = known()
    seen = {}  # metric -> [values of nvidia-smi, compared values, largest difference, number of differences, an example]
    with open(smi) as lines:
        for line in lines:
            what, before, after, *rest = [cell.strip() for cell in line.split(",")]
            if what == "process":
                if len(rest) == 3:
                    compare_value(seen, samples, (rest[0], "process_used_memory_bytes", int(rest[1])), number(rest[2]), MIB, MIB, before, after)
                continue
            for (_, metric, factor, tolerance), text in zip(fields, rest[1:]):
                compare_value(seen, samples, (rest[0], metric, 0), number(text), factor, tolerance, before, after)
    bad = 0
    print(f"{'metric':36} answers compared largest difference")
    for metric, (answers, compared, largest, differ, example) in sorted(seen.items()):
        note = ""
        if differ:
            bad += 1
            note = f"  {differ} DIFFER, {example}"
        elif not compared and answers:
            note = "  no sample at the time of nvidia-smi"
        print(f"{metric:36} {answers:7} {compared:8} {largest:g}{note}")
    print(f"compare-nvml: {len(seen)} metrics, {bad} differ")
    return 1 if bad or not seen else 0


def compare_value(seen, samples, key, answer, factor, tolerance, before, after):
    entry = seen.setdefault(key[1], [0, 0, 0.0, 0, ""])
    values = samples.get(key, [])
    if answer is None:  # not supported: the recording must have no sample
        if values and key[1] != "process_used_memory_bytes":
            entry[3] += 1
            entry[4] = f"nvidia-smi has no value, recorded {values[0][1]:g}"
        return
    entry[0] += 1
    if not values:
        entry[3] += 1
        entry[4] = "no sample recorded"
        return
    first = bisect.bisect_right(values, (int(before) - SLACK_NS, float("inf"))) - 1
    last = bisect.bisect_left(values, (int(after) + SLACK_NS, 0))
    if first < 0 or last == len(values):
        return  # the recording had not started, or had ended
    near = [v for _, v in values[first : last + 1]]
    entry[1] += 1
    want = answer * factor
    difference = max(min(near) - want, want - max(near), 0)
    entry[2] = max(entry[2], difference)
    if difference > tolerance:
        entry[3] += 1
        entry[4] = f"nvidia-smi {want:g}, recorded {min(near):g} to {max(near):g}"


if __name__ == "__main__":
    if sys.argv[1] == "fields":
        print(",".join(["uuid"] + [field for field, *_ in known()]))
    else:
        sys.exit(compare(sys.argv[2], sys.argv[3]))
