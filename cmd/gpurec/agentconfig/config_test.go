//go:build linux

package agentconfig

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/trigger"
)

func TestDefaults(t *testing.T) {
	testclass.Unit(t)
	f, err := Parse(nil)
	if err != nil {
		t.Fatal(err)
	}
	if !f.Record.All || f.Record.MaxOverheadPct != 3 || f.Record.Allocator != "off" ||
		f.Agent.Ring.Time != 10*time.Minute || len(f.Agent.Triggers) != len(trigger.Kinds) {
		t.Errorf("%+v", f)
	}
}

func TestValues(t *testing.T) {
	testclass.Unit(t)
	f, err := Parse([]byte(`
state: /data
ring: {time: 5m, size: 1GiB}
captures: {size: 2GiB, free: 20%, keep: 24h}
record: {comm: train, max_overhead: 1.5%, nvml_interval: 0s, classes: [memory, launch]}
limits: {memory: 512MiB, cpus: 1}
triggers:
  oom: {before: 1m}
  hang: {for: 30s, every: 10m}
  idle: {enabled: false}
  leak: {for: 5m, bytes: 1GiB, percent: 20%}
  slow: {for: 30s, factor: 2, steps: 100}
`))
	if err != nil {
		t.Fatal(err)
	}
	a := &f.Agent
	if a.State != "/data" || a.SocketPath() != "/data/agent.sock" || a.Ring.Bytes != 1<<30 ||
		a.Captures.FreePct != 20 ||
		a.Captures.Keep != 24*time.Hour ||
		a.Limits.MemoryBytes != 512<<20 ||
		f.Record.MaxOverheadPct != 1.5 ||
		f.Record.NVMLInterval != 0 ||
		len(f.Record.Classes) != 2 ||
		f.Record.Comm != "train" {
		t.Errorf("%+v", f)
	}
	oom, hang := a.Triggers[trigger.OOM], a.Triggers[trigger.Hang]
	if _, on := a.Triggers[trigger.Idle]; on || oom.Before != time.Minute || oom.After != 10*time.Second ||
		hang.Every != 10*time.Minute || a.Thresholds.Hang != 30*time.Second {
		t.Errorf("%+v", a)
	}
	if l := a.Thresholds; l.Leak != 5*time.Minute || l.LeakBytes != 1<<30 || l.LeakPct != 20 ||
		l.Slow != 30*time.Second || l.SlowFactor != 2 || l.SlowBefore != 100 {
		t.Errorf("%+v", l)
	}
}

func TestErrorsNameTheLine(t *testing.T) {
	testclass.Unit(t)
	for text, want := range map[string]string{
		"state: /a\nrings: {}":             "line 2: field rings is unknown",
		"ring:\n  time: 5":                 `line 2: "5" is no time`,
		"ring:\n  time: -5m":               `line 2: "-5m" is no time`,
		"ring: {size: many}":               `line 1: "many" is no size`,
		"ring: {size: 1MiB}":               "ring.size must be at least 16 MiB",
		"ring: {time: 1s}":                 "ring.time must be at least",
		"captures: {free: 101%}":           `"101%" is no percentage`,
		"captures: {free: NaN}":            `"NaN" is no percentage`,
		"triggers: {ooms: {}}":             `"ooms" is no trigger; triggers are oom`,
		"triggers: {all: {}}":              `"all" is no trigger`,
		"triggers:\n  oom:\n    befor: 1m": "line 3: field befor is unknown",
		"triggers: {oom: {for: 1m}}":       "oom has no key for",
		"triggers: {oom: {bytes: 1}}":      "oom has no key bytes",
		"triggers: {leak: {factor: 2}}":    "leak has no key factor",
		"triggers: {leak: {for: 1s}}":      "triggers.leak.for must be at least 2s",
		"triggers: {slow: {factor: 1}}":    "triggers.slow.factor must be above 1",
		"triggers: {slow: {factor: .nan}}": "triggers.slow.factor must be above 1",
		"triggers: {slow: {steps: 1}}":     "triggers.slow.steps must be from 20 to 2000",
		"record: {stacks: all}":            "record.stacks must be one of auto, full, fp, off",
		"record: {allocator: on}":          "record.allocator must be one of",
		"record: {classes: [kernels]}":     `record.classes: "kernels" is none of`,
		"record: {buffer: 100KiB}":         "record.buffer must be a power of two",
		"limits: {memory: 1MiB}":           "limits.memory must be at least 256 MiB",
		"limits: {cpus: 0}":                "limits.cpus must be at least 1",
		"limits: {cpus: two}":              "line 1: cannot unmarshal",
		"state: \"\"":                      "state must not be empty",
		"state: /a\n---\nstate: /b":        "more than one document",
		"a: &a [x]\nb: *a":                 "is unknown",
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// TestDocumentedConfiguration reads the example of docs/agent.md, which has every key.
func TestDocumentedConfiguration(t *testing.T) {
	testclass.Unit(t)
	text, err := os.ReadFile(filepath.FromSlash("../../../docs/agent.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "```yaml\n")
	example, _, closed := strings.Cut(rest, "```")
	if !ok || !closed {
		t.Fatal("docs/agent.md has no example")
	}
	f, err := Parse([]byte(example))
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	if f.Agent.State != want.Agent.State || f.Agent.Ring != want.Agent.Ring ||
		f.Agent.Captures != want.Agent.Captures ||
		f.Agent.Limits != want.Agent.Limits ||
		f.Agent.Thresholds != want.Agent.Thresholds {
		t.Errorf("the example is not that of the defaults: %+v", f.Agent)
	}
	for kind, w := range want.Agent.Triggers {
		if f.Agent.Triggers[kind] != w {
			t.Errorf("%s: %+v, default %+v", kind, f.Agent.Triggers[kind], w)
		}
	}
}
