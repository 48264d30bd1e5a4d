//go:build linux

// Package agentconfig reads the configuration file of gpurec agent.
package agentconfig

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/gpurec/gpurec/agent"
	"github.com/gpurec/gpurec/cmd/gpurec/size"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record"
	"github.com/gpurec/gpurec/record/library"
	"github.com/gpurec/gpurec/record/probe"
	"github.com/gpurec/gpurec/record/trigger"
)

// File is a configuration: options of the agent and of its recording.
type File struct {
	Agent  agent.Config
	Record record.Options
}

// Default returns the defaults.
func Default() File {
	f := File{Agent: agent.DefaultConfig(), Record: record.DefaultOptions()}
	f.Record.All, f.Record.NVMLInterval, f.Record.MaxOverheadPct = true, time.Second, 3
	f.Record.Allocator = library.AllocatorModeOff
	return f
}

// Read reads a file. Its errors name the line of an unknown key or of a wrong value.
func Read(path string) (File, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return File{}, err
	}
	f, err := Parse(text)
	if err != nil {
		return File{}, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// Parse parses the text of a file. Missing keys have their defaults.
func Parse(text []byte) (File, error) {
	f := Default()
	var y document
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&y); err != nil && !errors.Is(err, io.EOF) {
		return f, explain(err)
	}
	if err := decoder.Decode(new(document)); !errors.Is(err, io.EOF) {
		return f, errors.New("the file has more than one document")
	}
	return f, y.apply(&f)
}

// goType matches the name of the Go type in errors of the YAML library.
var goType = regexp.MustCompile(` in type \S+`)

// explain returns an error of the YAML library in words of the configuration.
func explain(err error) error {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	text = strings.TrimPrefix(text, "unmarshal errors:\n  ")
	text = goType.ReplaceAllString(text, "")
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\n  ", "; "), "not found", "is unknown")
	return errors.New(text)
}

// document is the file as YAML. Pointers are nil for missing keys.
type document struct {
	State    *string              `yaml:"state"`
	Socket   *string              `yaml:"socket"`
	Ring     ring                 `yaml:"ring"`
	Captures captures             `yaml:"captures"`
	Record   recording            `yaml:"record"`
	Limits   limits               `yaml:"limits"`
	Triggers map[string]*aTrigger `yaml:"triggers"`
}

type ring struct {
	Time *duration `yaml:"time"`
	Size *bytesOf  `yaml:"size"`
}

type captures struct {
	Size    *bytesOf  `yaml:"size"`
	Free    *percent  `yaml:"free"`
	Keep    *duration `yaml:"keep"`
	PerHour *int      `yaml:"per_hour"`
}

type recording struct {
	Comm         *string   `yaml:"comm"`
	Cgroup       *string   `yaml:"cgroup"`
	Classes      []string  `yaml:"classes"`
	Stacks       *string   `yaml:"stacks"`
	Allocator    *string   `yaml:"allocator"`
	MaxOverhead  *percent  `yaml:"max_overhead"`
	NVMLInterval *duration `yaml:"nvml_interval"`
	Segment      *duration `yaml:"segment_interval"`
	Buffer       *bytesOf  `yaml:"buffer"`
}

type limits struct {
	Memory *bytesOf `yaml:"memory"`
	CPUs   *int     `yaml:"cpus"`
}

// aTrigger is the configuration of one kind of trigger.
type aTrigger struct {
	Enabled *bool     `yaml:"enabled"`
	Before  *duration `yaml:"before"`
	After   *duration `yaml:"after"`
	Every   *duration `yaml:"every"`
	For     *duration `yaml:"for"`     // how long the condition must hold: hang, throttle, idle, loss, leak, slow
	Bytes   *bytesOf  `yaml:"bytes"`   // leak
	Percent *percent  `yaml:"percent"` // leak
	Factor  *float64  `yaml:"factor"`  // slow
	Steps   *int      `yaml:"steps"`   // slow: the steps before
}

// duration is a time such as 10m.
type duration time.Duration

// UnmarshalYAML parses a duration that is not negative.
func (d *duration) UnmarshalYAML(node *yaml.Node) error {
	value, err := time.ParseDuration(node.Value)
	if err != nil || value < 0 {
		return fmt.Errorf("line %d: %q is no time such as 10m or 30s", node.Line, node.Value)
	}
	*d = duration(value)
	return nil
}

// bytesOf is a size such as 4GiB.
type bytesOf int64

// UnmarshalYAML parses a size.
func (b *bytesOf) UnmarshalYAML(node *yaml.Node) error {
	value, err := size.Parse(node.Value)
	if err != nil {
		return fmt.Errorf("line %d: %q is no size such as 4GiB", node.Line, node.Value)
	}
	*b = bytesOf(value)
	return nil
}

// percent is a share such as 10%.
type percent float64

// UnmarshalYAML parses a share from 0 to 100 %.
func (p *percent) UnmarshalYAML(node *yaml.Node) error {
	value, err := strconv.ParseFloat(strings.TrimSuffix(node.Value, "%"), 64)
	if err != nil || !(value >= 0 && value <= 100) {
		return fmt.Errorf("line %d: %q is no percentage from 0%% to 100%%", node.Line, node.Value)
	}
	*p = percent(value)
	return nil
}

// set copies a value that the file has.
func set[T, Y any](to *T, from *Y, convert func(Y) T) {
	if from != nil {
		*to = convert(*from)
	}
}

func same[T any](v T) T                     { return v }
func asTime(d duration) time.Duration       { return time.Duration(d) }
func asBytes(b bytesOf) int64               { return int64(b) }
func asPercent(p percent) float64           { return float64(p) }
func asMode(s string) library.AllocatorMode { return library.AllocatorMode(s) }

// apply changes the defaults to what the file says, and checks the values.
func (d *document) apply(f *File) error {
	c, r := &f.Agent, &f.Record
	set(&c.State, d.State, same)
	set(&c.Socket, d.Socket, same)
	set(&c.Ring.Time, d.Ring.Time, asTime)
	set(&c.Ring.Bytes, d.Ring.Size, asBytes)
	set(&c.Captures.Bytes, d.Captures.Size, asBytes)
	set(&c.Captures.FreePct, d.Captures.Free, asPercent)
	set(&c.Captures.Keep, d.Captures.Keep, asTime)
	set(&c.Captures.PerHour, d.Captures.PerHour, same)
	set(&c.Limits.MemoryBytes, d.Limits.Memory, asBytes)
	set(&c.Limits.CPUs, d.Limits.CPUs, same)
	set(&r.Comm, d.Record.Comm, same)
	set(&r.Cgroup, d.Record.Cgroup, same)
	set(&r.Stacks, d.Record.Stacks, same)
	set(&r.Allocator, d.Record.Allocator, asMode)
	set(&r.MaxOverheadPct, d.Record.MaxOverhead, asPercent)
	set(&r.NVMLInterval, d.Record.NVMLInterval, asTime)
	set(&r.SegmentInterval, d.Record.Segment, asTime)
	set(&r.BufferBytes, d.Record.Buffer, func(b bytesOf) int { return int(b) })
	r.Classes = d.Record.Classes
	if err := d.applyTriggers(c); err != nil {
		return err
	}
	return check(f)
}

// applyTriggers changes the triggers.
func (d *document) applyTriggers(c *agent.Config) error {
	for name, t := range d.Triggers {
		kinds, err := trigger.ParseKinds([]string{name})
		if err != nil || name == "all" {
			return fmt.Errorf("triggers: %q is no trigger; triggers are %s", name, strings.Join(trigger.Names(), ", "))
		}
		if t == nil {
			continue
		}
		kind := kinds[0]
		if t.Enabled != nil && !*t.Enabled {
			delete(c.Triggers, kind)
			continue
		}
		w := c.Triggers[kind]
		set(&w.Before, t.Before, asTime)
		set(&w.After, t.After, asTime)
		set(&w.Every, t.Every, asTime)
		c.Triggers[kind] = w
		if err := t.applyThresholds(kind, &c.Thresholds); err != nil {
			return err
		}
	}
	return nil
}

// applyThresholds changes the thresholds of a kind.
func (t *aTrigger) applyThresholds(kind trigger.Kind, limits *trigger.Thresholds) error {
	isOf := func(key string, only trigger.Kind, isSet bool) error {
		if isSet && kind != only {
			return fmt.Errorf("triggers: %s has no key %s", kind, key)
		}
		return nil
	}
	if err := errors.Join(isOf("bytes", trigger.Leak, t.Bytes != nil), isOf("percent", trigger.Leak, t.Percent != nil),
		isOf("factor", trigger.Slow, t.Factor != nil), isOf("steps", trigger.Slow, t.Steps != nil)); err != nil {
		return err
	}
	set(&limits.LeakBytes, t.Bytes, asBytes)
	set(&limits.LeakPct, t.Percent, asPercent)
	set(&limits.SlowFactor, t.Factor, same)
	set(&limits.SlowBefore, t.Steps, same)
	if t.For == nil {
		return nil
	}
	times := map[trigger.Kind]*time.Duration{
		trigger.Hang: &limits.Hang, trigger.Throttle: &limits.Throttle, trigger.Idle: &limits.Idle,
		trigger.Loss: &limits.LossInterval, trigger.Leak: &limits.Leak, trigger.Slow: &limits.Slow,
	}
	to, ok := times[kind]
	if !ok {
		return fmt.Errorf("triggers: %s has no key for: it fires at once", kind)
	}
	*to = asTime(*t.For)
	return nil
}

// minMemoryBytes is the least memory that an agent needs.
const minMemoryBytes = 256 << 20

// maxSlowSteps bounds the steps that the agent keeps for each call site.
const maxSlowSteps = 2000

// check returns an error for a value out of range.
func check(f *File) error {
	c, r := &f.Agent, &f.Record
	stacks := []string{probe.StacksAuto, probe.StacksFull, probe.StacksFP, probe.StacksOff}
	allocators := []string{
		string(library.AllocatorModeAuto), string(library.AllocatorModeFull), string(library.AllocatorModeLight),
		string(library.AllocatorModeOff),
	}
	has := func(list []string, s string) bool {
		return strings.Contains(" "+strings.Join(list, " ")+" ", " "+s+" ")
	}
	switch {
	case c.State == "":
		return errors.New("state must not be empty")
	case c.Ring.Bytes < format.MinMaxBytes:
		return fmt.Errorf("ring.size must be at least %d MiB", format.MinMaxBytes>>20)
	case r.SegmentInterval < 100*time.Millisecond:
		return errors.New("record.segment_interval must be at least 100ms")
	case c.Ring.Time < r.SegmentInterval:
		return fmt.Errorf("ring.time must be at least record.segment_interval, %v", r.SegmentInterval)
	case c.Captures.FreePct > 90:
		return errors.New("captures.free must be at most 90%")
	case c.Captures.PerHour < 1:
		return errors.New("captures.per_hour must be at least 1")
	case c.Limits.MemoryBytes < minMemoryBytes:
		return fmt.Errorf("limits.memory must be at least %d MiB", minMemoryBytes>>20)
	case c.Limits.CPUs < 1:
		return errors.New("limits.cpus must be at least 1")
	case !has(stacks, r.Stacks):
		return fmt.Errorf("record.stacks must be one of %s", strings.Join(stacks, ", "))
	case !has(allocators, string(r.Allocator)):
		return fmt.Errorf("record.allocator must be one of %s", strings.Join(allocators, ", "))
	case r.NVMLInterval > 0 && r.NVMLInterval < time.Millisecond:
		return errors.New("record.nvml_interval must be at least 1ms, or 0s")
	case r.BufferBytes < 64<<10 || r.BufferBytes&(r.BufferBytes-1) != 0:
		return errors.New("record.buffer must be a power of two, at least 64KiB")
	case c.Thresholds.Hang < 100*time.Millisecond:
		return errors.New("triggers.hang.for must be at least 100ms")
	case c.Thresholds.Leak < 2*time.Second:
		return errors.New("triggers.leak.for must be at least 2s")
	case !(c.Thresholds.SlowFactor > 1):
		return errors.New("triggers.slow.factor must be above 1")
	case c.Thresholds.SlowBefore < c.Thresholds.SlowRecent || c.Thresholds.SlowBefore > maxSlowSteps:
		return fmt.Errorf("triggers.slow.steps must be from %d to %d", c.Thresholds.SlowRecent, maxSlowSteps)
	}
	for _, class := range r.Classes {
		if !has(format.RecordClasses, class) {
			return fmt.Errorf("record.classes: %q is none of %s", class, strings.Join(format.RecordClasses, ", "))
		}
	}
	return nil
}
