//go:build linux && cgo

package record

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/simtest"
	"github.com/gpurec/gpurec/record/xid"
)

func TestXidsComeFromNVMLWithoutKernelLog(t *testing.T) {
	testclass.Root(t)
	needKernel(t)
	answers := simtest.LoadSimulatedNVML(t, simcudaDir)
	simtest.SetNVMLAnswers(t, answers)
	p := startSim(
		t,
		[]string{"SIMCUDA_STATE=" + os.Getenv("SIMCUDA_STATE")},
		"storm",
		"--calls",
		"10",
		"--threads",
		"1",
		"--seed",
		"1",
		"--wait",
	)
	p.expect("ready")
	opt := testOptions(t, p.pid())
	opt.NVMLInterval = 100 * time.Millisecond
	opt.xids = &xid.SourcePaths{Kmsg: filepath.Join(t.TempDir(), "none"), NoBPF: true}
	s := start(t, opt)
	result := runWhile(t, s, func() {
		simtest.SetNVMLAnswers(t, answers, "xid 79")
		time.Sleep(100 * time.Millisecond)
	})
	rows := factRows(t, result.Output, format.KindXid)
	if len(rows) != 1 || rows[0].Value != 79 || rows[0].Device != 0 || rows[0].Pid != 0 ||
		!strings.Contains(rows[0].Message, `"sources":["nvml"]`) {
		t.Errorf("%+v", rows)
	}
	var notes []string
	for _, r := range factRows(t, result.Output, format.KindNote) {
		if r.Name == "xids" {
			notes = append(notes, r.Message)
		}
	}
	if len(notes) != 1 || !strings.Contains(notes[0], "no such file") ||
		!strings.Contains(notes[0], "tracefs is not mounted") {
		t.Errorf("notes: %q", notes)
	}
}

func TestProcessesAndFactsAreRecorded(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	needKernel(t)
	answers := simtest.LoadSimulatedNVML(t, simcudaDir)
	simtest.SetNVMLAnswers(
		t,
		answers,
		"nvmlDeviceGetProcessUtilization 37 0 5 255",
		"nvmlDeviceGetNvLinkState:0 1",
		"nvmlDeviceGetNvLinkState:1 0",
	)
	t.Setenv("SIMCUDA_DEVICES", "2")
	// The recorder and the program share the state of the simulated NVML.
	state := "SIMCUDA_STATE=" + os.Getenv("SIMCUDA_STATE")
	other := startSim(t, []string{state}, "storm", "--calls", "10", "--threads", "1", "--seed", "1", "--wait")
	other.expect("ready")
	p := startSim(t, []string{state}, "storm", "--calls", "2000", "--threads", "1", "--seed", "1", "--wait")
	p.expect("ready")
	opt := testOptions(t, p.pid())
	opt.NVMLInterval = 20 * time.Millisecond
	s := start(t, opt)
	result := runWhile(t, s, func() {
		p.step()
		p.expect("done")
		time.Sleep(time.Second) // 50 samples
	})
	p.finish()

	seen := make(map[int32]map[string][]format.Row)
	samples := 0
	for _, r := range factRows(t, result.Output, format.KindNVML) {
		if r.Device == 0 && r.Name == "power_milliwatts" {
			samples++
		}
		if r.Pid != 0 {
			if seen[r.Pid] == nil {
				seen[r.Pid] = make(map[string][]format.Row)
			}
			seen[r.Pid][r.Name] = append(seen[r.Pid][r.Name], r)
		}
	}
	if samples < 10 {
		t.Errorf("%d samples", samples)
	}
	for _, pid := range []int{p.pid(), other.pid()} {
		metrics := seen[int32(pid)]
		used := metrics["process_used_memory_bytes"]
		if len(used) < 2 || used[0].Message != "storm" { // at least the first and the last sample
			t.Errorf("memory of process %d: %+v", pid, used)
		}
		for name, want := range map[string]float64{
			"process_sm_utilization_percent":      37,
			"process_memory_utilization_percent":  0,
			"process_encoder_utilization_percent": 5,
		} {
			rows := metrics[name]
			if len(rows) == 0 || rows[0].Value != want || rows[0].StartNs < result.Meta.StartNs ||
				rows[0].StartNs > result.Meta.EndNs {
				t.Errorf("%s of %d: %+v", name, pid, rows)
			}
		}
		if rows := metrics["process_decoder_utilization_percent"]; len(rows) > 0 {
			t.Errorf("255 %% is no measurement: %+v", rows)
		}
	}

	devices := factRows(t, result.Output, format.KindDevice)
	if len(devices) != 2 {
		t.Fatalf("%d devices", len(devices))
	}
	var fact format.DeviceFact
	if err := json.Unmarshal([]byte(devices[0].Message), &fact); err != nil {
		t.Fatal(err)
	}
	if fact.ComputeCapability != "9.0" || fact.PCI != "0000:06:00.0" || fact.PowerLimitMaxMilliwatts != 700000 ||
		fact.ComputeMode != "default" ||
		fact.ECC == nil ||
		!*fact.ECC ||
		fact.MIG == nil ||
		*fact.MIG ||
		fact.SlowdownCelsius != 87 ||
		len(fact.NVLinks) != 2 ||
		!fact.NVLinks[0].Active ||
		fact.NVLinks[1].Active ||
		len(fact.Topology) != 1 ||
		fact.Topology[0] != (format.PCIePath{Device: 1, Between: "host_bridge"}) {
		t.Errorf("device: %s", devices[0].Message)
	}

	meta := result.Meta
	if len(meta.Cost.Sampling) != 2 || meta.Cost.Sampling[0].Samples < int64(samples) ||
		meta.Cost.Sampling[0].CPUNs <= 0 ||
		len(meta.Cost.Sampling[0].Queries) < 20 ||
		meta.Cost.RowsDropped != 0 {
		t.Errorf("cost: %+v", meta.Cost)
	}
	if meta.Machine.CPUs < 1 || meta.Machine.MemoryBytes < 1<<20 || len(meta.Clocks) != 2 {
		t.Errorf("machine %+v, clocks %+v", meta.Machine, meta.Clocks)
	}
	for _, c := range meta.Clocks {
		if off := c.RealtimeNs - c.MonotonicNs - meta.ClockOffsetNs; off > 5e6 || off < -5e6 ||
			c.BoottimeNs < c.MonotonicNs {
			t.Errorf("clocks %+v, offset %d", c, meta.ClockOffsetNs)
		}
	}
}
