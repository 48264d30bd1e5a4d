//go:build linux

package record

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

// AllocatorMode says by which of its functions PyTorch's caching allocator is recorded.
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
	return []Probe{{
		Symbol: format.SourceReports, Cookie: bpf.AllocatorCookie(bpf.ReportRow), FileOffset: offset + uint64(skip), Skipped: skip, Emulated: emulated,
	}}, ""
}

// wanted returns which of the libraries that a process has mapped are probed for it: of its
// allocator the one that tells of it, never two.
func (m AllocatorMode) wanted(libs []*library) []*library {
	var teller *library
	if allocator := firstOf(libs, allocatorLibrary); allocator != nil && m != AllocatorOff {
		teller, _ = m.teller(allocator, firstOf(libs, reportLibrary))
	}
	return slices.DeleteFunc(slices.Clone(libs), func(l *library) bool { return l.kind != driverLibrary && l != teller })
}

// teller returns which of the two libraries tells of an allocator, nil if none does, and why
// it is not the allocator's own. reports is nil if that is not mapped.
func (m AllocatorMode) teller(allocator, reports *library) (lib *library, why string) {
	switch {
	case m != AllocatorLight && allocator.missing == "":
		return allocator, ""
	case reports == nil:
		return nil, cmp.Or(allocator.missing, "libc10.so is not mapped")
	case reports.missing != "" && m == AllocatorLight:
		return nil, reports.missing
	case reports.missing != "":
		return nil, allocator.missing + "; " + reports.missing
	}
	return reports, allocator.missing
}

// firstOf returns the first library of a kind, or nil.
func firstOf(libs []*library, kind libraryKind) *library {
	if i := slices.IndexFunc(libs, func(l *library) bool { return l.kind == kind }); i >= 0 {
		return libs[i]
	}
	return nil
}

// source is by what an allocator is recorded that this library tells of.
func (l *library) source() bpf.CudaAllocatorSource {
	if l.kind == reportLibrary {
		return bpf.CudaAllocatorSourceSOURCE_REPORTS
	}
	return bpf.CudaAllocatorSourceSOURCE_TRACE
}

// reportsLack is what reports do not tell.
const reportsLack = "bytes asked for, streams, pools, segments, requests that failed, and when streams are done with a block"

// limitedAllocator says in a sentence that an allocator is recorded by its reports, and what
// is not known for that.
func limitedAllocator(path, version, why string) string {
	if version != "" {
		path += " of PyTorch " + version
	}
	text := "PyTorch's allocations are recorded without " + reportsLack
	if why == "" {
		return text
	}
	return fmt.Sprintf("%s: %s: %s", text, path, why)
}
