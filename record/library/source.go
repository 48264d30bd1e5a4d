//go:build linux

package library

import (
	"cmp"
	"fmt"
	"os"
	"regexp"
	"slices"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/symbolize"
)

// AllocatorMode selects the functions by which PyTorch's caching allocator is recorded.
type AllocatorMode string

// Ways to record an allocator. No process is ever recorded in two.
const (
	// AllocatorAuto records everything that record_trace is told, three events a tensor, and
	// where that cannot be probed what AllocatorLight does.
	AllocatorAuto AllocatorMode = "auto"
	// AllocatorLight records what the allocator reports to profilers, two events a tensor:
	// without bytes asked for, streams, pools, segments and requests that failed.
	AllocatorLight AllocatorMode = "light"
	AllocatorOff   AllocatorMode = "off"
)

// reportName is the file that reportFunction is in.
var reportName = regexp.MustCompile(`^libc10(-[0-9a-f]+)?\.so$`)

// reportFunction is told of every block that is handed out or given back, and of the
// allocator's totals then: c10::reportMemoryUsageToProfiler(void*, long, unsigned long,
// unsigned long, c10::Device).
const reportFunction = "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE"

// chooseReports returns where reports are to be probed, or why they are not.
func chooseReports(object *symbolize.Object, code *os.File) (probes []Probe, missing string) {
	missing = "libc10.so has no " + symbolize.Demangle(reportFunction)
	machine, err := machineOf(code)
	if err != nil {
		return nil, err.Error()
	}
	function, ok := object.Find(reportFunction)
	if !ok {
		return nil, missing
	}
	offset, ok := object.FileOffset(function.Start)
	if !ok {
		return nil, missing
	}
	text := make([]byte, 32)
	n, err := code.ReadAt(text, int64(offset))
	if n == 0 {
		return nil, err.Error()
	}
	skip, emulated := probeOffset(machine, text[:n])
	return []Probe{
		{
			Symbol:     format.SourceReports,
			Cookie:     bpf.AllocatorCookie(bpf.ReportRow),
			FileOffset: offset + uint64(skip),
			Skipped:    skip,
			Emulated:   emulated,
		},
	}, ""
}

// Wanted returns the mapped libraries that are to be probed for a process: of its allocator one
// source, never both.
func (m AllocatorMode) Wanted(libs []*Library) []*Library {
	var teller *Library
	if allocator := First(libs, Allocator); allocator != nil && m != AllocatorOff {
		teller, _ = m.ChooseSource(allocator, First(libs, Reports))
	}
	return slices.DeleteFunc(slices.Clone(libs), func(l *Library) bool { return l.Kind != Driver && l != teller })
}

// ChooseSource returns the library whose functions are probed for an allocator, nil if there is
// none. why says why it is not the allocator's own. reports is nil if libc10 is not mapped.
func (m AllocatorMode) ChooseSource(allocator, reports *Library) (lib *Library, why string) {
	switch {
	case m != AllocatorLight && allocator.Missing == "":
		return allocator, ""
	case reports == nil:
		return nil, cmp.Or(allocator.Missing, "libc10.so is not mapped")
	case reports.Missing != "" && m == AllocatorLight:
		return nil, reports.Missing
	case reports.Missing != "":
		return nil, allocator.Missing + "; " + reports.Missing
	}
	return reports, allocator.Missing
}

// First returns the first library of a kind, or nil.
func First(libs []*Library, kind Kind) *Library {
	if i := slices.IndexFunc(libs, func(l *Library) bool { return l.Kind == kind }); i >= 0 {
		return libs[i]
	}
	return nil
}

// Source returns the source of allocator events that the library is.
func (l *Library) Source() bpf.CudaAllocatorSource {
	if l.Kind == Reports {
		return bpf.CudaAllocatorSourceSOURCE_REPORTS
	}
	return bpf.CudaAllocatorSourceSOURCE_TRACE
}

// reportsLack is what reports do not tell.
const reportsLack = "bytes asked for, streams, pools, segments, requests that failed, and when streams are done " +
	"with a block"

// LimitsText returns a sentence on what is unknown of an allocator that is recorded by its
// reports.
func LimitsText(path, version, why string) string {
	if version != "" {
		path += " of PyTorch " + version
	}
	text := "PyTorch's allocations are recorded without " + reportsLack
	if why == "" {
		return text
	}
	return fmt.Sprintf("%s: %s: %s", text, path, why)
}
