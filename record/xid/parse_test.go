//go:build linux

package xid

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/host"
)

// FuzzRawXid decodes records of the BPF program.
func FuzzRawXid(f *testing.F) {
	f.Add(make([]byte, rawXidRecordBytes))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if s, _, ok := decodeRawXid(raw); ok && len(s.text)+len(s.PCI) > len(raw) {
			t.Errorf("%+v of %d bytes", s, len(raw))
		}
	})
}

func TestXidsInTheKernelLog(t *testing.T) {
	testclass.Unit(t)
	for _, c := range []struct {
		line string
		want string // pci sxid code pid process text
	}{
		{
			"NVRM: Xid (PCI:0000:00:06): 31, pid=462, name=illegal, channel 0x0000000a, intr 00000000. MMU Fault: " +
				"ENGINE GRAPHICS",
			"0000:00:06 false 31 462 illegal channel 0x0000000a, intr 00000000. MMU Fault: ENGINE GRAPHICS",
		},
		{
			"NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
			"0000:3b:00 false 79 0  GPU has fallen off the bus.",
		},
		{"NVRM: Xid (PCI:0000:3B:00): 79, pid=1234, GPU has fallen off the bus.", "0000:3B:00 false 79 1234  GPU " +
			"has fallen off the bus."},
		{
			`NVRM: Xid (PCI:0000:3b:00): 13, pid="77", name='my prog', Graphics SM Warp Exception on (GPC 0, TPC 1, SM 0): Illegal Instruction Encoding`,
			"0000:3b:00 false 13 77 my prog Graphics SM Warp Exception on (GPC 0, TPC 1, SM 0): Illegal Instruction " +
				"Encoding",
		},
		{"NVRM: Xid (0000:03:00): 8, Channel 00000013", "0000:03:00 false 8 0  Channel 00000013"},
		{
			"NVRM: Xid (PCI:0000:07:00 GPU-I:05): 94, pid=7194, name=train, Contained: SM (0x1). RST: No, D-RST: No",
			"0000:07:00 false 94 7194 train GPU-I:05 Contained: SM (0x1). RST: No, D-RST: No",
		},
		{"NVRM: Xid (PCI:0000:3b:00): 43, pid=9, name=a", "0000:3b:00 false 43 9 a "},
		{"NVRM: Xid (PCI:0000:3b:00): 45", "0000:3b:00 false 45 0  "},
		{"nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 30 LTSSM Fault Up", "0000:05:00.0 true " +
			"20034 0  Fatal, Link 30 LTSSM Fault Up"},
		{"nvidia-nvswitch: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 00 " +
			"egress", "0000:c1:00.0 true 12028 0  Non-fatal, Link 00 egress"},
		{"NVRM: Xid (PCI:0000:3b:00): 99999999999, pid=1", ""},
		{"NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.95", ""},
		{"NVRM: GPU at PCI:0000:3b:00: GPU-6a5e7b1c", ""},
		{"program: NVRM: Xid (PCI:0000:3b:00): 79, made up", ""},
	} {
		s, ok := parseKmsgXid(c.line)
		got := ""
		if ok {
			got = fmt.Sprintf("%s %v %d %d %s %s", s.PCI, s.sxid, s.Code, s.pid, s.process, s.text)
		}
		if got != c.want {
			t.Errorf("%s\n got %q\nwant %q", c.line, got, c.want)
		}
	}
}

func TestXidsOfTheTracepoint(t *testing.T) {
	testclass.Unit(t)
	for _, c := range []struct {
		line string
		ns   int64
		want string // pci code text
	}{
		{
			`         illegal-462     [003] d..1.  1234.567890: nvidia_dev_xid: dev=0000:00:06.0 error_code=31 msg="channel 0x0000000a, MMU Fault"`,
			1234567890000, "0000:00:06.0 31 channel 0x0000000a, MMU Fault",
		},
		{
			`   irq/44-nvidia-181     [000] .....    27.210862: nvidia_dev_xid: Xid (PCI:0000:00:06.0): 31, channel 0x0000000a, intr 00000000. MMU Fault: ENGINE GRAPHICS`,
			27210862000, "0000:00:06.0 31 channel 0x0000000a, intr 00000000. MMU Fault: ENGINE GRAPHICS",
		},
		{
			`  a 7.000001: b-462     [003] d..1.  12.000007: nvidia_dev_xid: dev=0000:00:06.0 error_code=79 msg=GPU has fallen off the bus.`,
			12000007000, "0000:00:06.0 79 GPU has fallen off the bus.",
		},
		{`CPU:3 [LOST 12 EVENTS]`, 0, ""},
		{`  x-1 [000] ..... 1.000000: other_event: dev=0000:00:06.0 error_code=31 msg="x"`, 0, ""},
	} {
		s, ns, ok := parseTraceXid(c.line)
		got := ""
		if ok {
			got = fmt.Sprintf("%s %d %s", s.PCI, s.Code, s.text)
		}
		if got != c.want || ns != c.ns {
			t.Errorf("%s\n got %d %q\nwant %d %q", c.line, ns, got, c.ns, c.want)
		}
	}
}

func TestKernelLogRecords(t *testing.T) {
	testclass.Unit(t)
	got := parseKmsgRecords("6,339,5140900,-;NVRM: one; two\n SUBSYSTEM=pci\n " +
		"DEVICE=+pci:0000:00:06.0\n4,340,5140901,c;next\nrubbish\n6,1,x,-;no time\n")
	want := []kmsgRecord{{5140900000, "NVRM: one; two"}, {5140901000, "next"}}
	if !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
}

func TestXidOfTheProgram(t *testing.T) {
	testclass.Unit(t)
	raw := make([]byte, rawXidRecordBytes)
	binary.NativeEndian.PutUint64(raw, 12345)
	binary.NativeEndian.PutUint64(raw[8:], 31)
	copy(raw[rawXidDeviceOffset:], "0000:00:06.0\x00rubbish")
	copy(raw[rawXidTextOffset:], "channel 0x0a\x00rubbish")
	s, ns, ok := decodeRawXid(raw)
	if want := (Report{Source: sourceTracepoint, PCI: "0000:00:06.0", Code: 31, text: "channel 0x0a"}); !ok ||
		ns != 12345 ||
		s != want {
		t.Errorf("%+v at %d", s, ns)
	}
	if _, _, ok := decodeRawXid(raw[:100]); ok {
		t.Error("a record that was cut off is taken")
	}
}

func FuzzXidText(f *testing.F) {
	f.Add("6,339,5140900,-;NVRM: Xid (PCI:0000:00:06): 31, pid=462, name=illegal, channel\n SUBSYSTEM=pci")
	f.Add(`  a-1 [000] d..1. 1.000000: nvidia_dev_xid: dev=0000:00:06.0 error_code=31 msg="x"`)
	f.Add("4,1,1,-;nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 30")
	f.Fuzz(func(t *testing.T, raw string) {
		m := NewReportMerger(nil)
		for _, r := range parseKmsgRecords(raw) {
			if s, ok := parseKmsgXid(r.text); ok {
				m.AddReport(s, 1)
			}
		}
		for line := range strings.Lines(raw) {
			if s, _, ok := parseTraceXid(line); ok {
				m.AddReport(s, 1)
			}
		}
		for _, row := range m.takeRows(2) {
			var fact format.XidFact
			if err := json.Unmarshal(
				[]byte(row.Message),
				&fact,
			); err != nil || len(fact.Text) > 2*maxXidTextBytes ||
				row.Pid < 0 {
				t.Errorf("%+v: %v", row, err)
			}
		}
	})
}

func TestXidOfSeveralSourcesIsOneRow(t *testing.T) {
	testclass.Unit(t)
	m := NewReportMerger([]host.GPU{{PCI: "0000:00:05.0", Index: 0}, {PCI: "0000:00:06.0", Index: 1}})
	trace := Report{Source: sourceTracepoint, AtNs: 10e9, PCI: "0000:00:06.0", Code: 31, text: "channel 0x0a, fault"}
	kmsg := Report{
		Source:  sourceKmsg,
		AtNs:    10e9 + 3e6,
		PCI:     "0000:00:06",
		Code:    31,
		pid:     462,
		process: "illegal",
		text:    "channel 0x0a, fault",
	}
	at := func(s Report, ns int64) Report { s.AtNs += ns; return s }
	other := kmsg
	other.Code = 43
	history := kmsg
	history.before = true
	m.AddReport(kmsg, 1)
	m.AddReport(trace, 1)
	m.AddReport(at(trace, 100e6), 1) // the same code again, 100 ms later
	m.AddReport(at(kmsg, 100e6), 1)
	m.AddReport(other, 1)
	m.AddReport(at(trace, 5e9), 1) // reported seconds later by one source only
	m.AddReport(Report{Source: sourceKmsg, PCI: "0000:05:00.0", sxid: true, Code: 20034, text: "Fatal"}, 2)
	if rows := m.takeRows(1); len(rows) != 0 {
		t.Errorf("too early: %+v", rows)
	}
	m.AddReport(history, 1)
	rows := slices.Concat(m.takeRows(1), m.takeRows(2), m.takeRows(3))
	var got []string
	for _, r := range rows {
		var f format.XidFact
		if err := json.Unmarshal([]byte(r.Message), &f); err != nil {
			t.Fatal(err)
		}
		got = append(
			got,
			fmt.Sprintf(
				"%s %v dev=%d pid=%d %s %dms %s %v before=%v",
				r.Name,
				r.Value,
				r.Device,
				r.Pid,
				f.Process,
				r.StartNs/1e6,
				f.PCI,
				f.Sources,
				f.Before,
			),
		)
	}
	want := []string{
		"xid 31 dev=1 pid=462 illegal 10003ms 0000:00:06 [kmsg] before=true",
		"xid 31 dev=1 pid=462 illegal 10000ms 0000:00:06.0 [tracepoint kmsg] before=false",
		"xid 31 dev=1 pid=462 illegal 10100ms 0000:00:06.0 [tracepoint kmsg] before=false",
		"xid 43 dev=1 pid=462 illegal 10003ms 0000:00:06 [kmsg] before=false",
		"xid 31 dev=1 pid=0  15000ms 0000:00:06.0 [tracepoint] before=false",
		"sxid 20034 dev=-1 pid=0  0ms 0000:05:00.0 [kmsg] before=false",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
