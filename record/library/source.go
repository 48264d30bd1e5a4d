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

// AllocatorMode selects the functions that are probed to record PyTorch's caching allocator.
type AllocatorMode string

// Allocator modes. A process is recorded through one function only.
const (
	// AllocatorModeAuto probes record_trace, with three events per tensor. If record_trace cannot
	// be probed, it works like AllocatorModeLight.
	// Above Options.MaxOverheadPct of package record, it records windows of events.
	AllocatorModeAuto AllocatorMode = "auto"
	// AllocatorModeFull is AllocatorModeAuto, but records every event whatever it costs.
	AllocatorModeFull AllocatorMode = "full"
	// AllocatorModeLight probes the allocator's reports to profilers, with two events per tensor.
	// They lack requested sizes, streams, pools, segments and failed requests.
	AllocatorModeLight AllocatorMode = "light"
	// AllocatorModeOff records no allocator.
	AllocatorModeOff AllocatorMode = "off"
)

// reportFileName matches the file name of the library with reportFunctionSymbol.
var reportFileName = regexp.MustCompile(`^libc10(-[0-9a-f]+)?\.so$`)

// reportFunctionSymbol is the mangled name of c10::reportMemoryUsageToProfiler(void*, long,
// unsigned long, unsigned long, c10::Device). The allocator calls it for each block that it
// allocates or frees, with its totals.
const reportFunctionSymbol = "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE"

// findReportProbe returns the probe of reportFunctionSymbol, or the reason why it cannot be probed.
func findReportProbe(object *symbolize.Object, code *os.File) (probes []Probe, missing string) {
	missing = "libc10.so has no " + symbolize.Demangle(reportFunctionSymbol)
	machine, err := readELFMachine(code)
	if err != nil {
		return nil, err.Error()
	}
	function, ok := object.Find(reportFunctionSymbol)
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
	skip, emulated := chooseProbeOffset(machine, text[:n])
	return []Probe{
		{
			Symbol:     format.SourceReports,
			Cookie:     bpf.AllocatorCookie(bpf.ReportFunctionRow),
			FileOffset: offset + uint64(skip),
			Skipped:    skip,
			Emulated:   emulated,
		},
	}, ""
}

// SelectLibraries returns those of libs that are probed for a process: the driver, NCCL, PyTorch's autograd engine
// and one allocator source.
func (m AllocatorMode) SelectLibraries(libs []*Library) []*Library {
	var source *Library
	if allocator := FirstOfKind(libs, KindAllocator); allocator != nil && m != AllocatorModeOff {
		source, _ = m.ChooseSource(allocator, FirstOfKind(libs, KindReports))
	}
	return slices.DeleteFunc(slices.Clone(libs), func(l *Library) bool {
		return l.Kind != KindDriver && l.Kind != KindCollectives && l.Kind != KindEngine && l != source
	})
}

// ChooseSource returns the library whose function is probed for an allocator, or nil if there is
// none. If the library is not allocator, why is the reason. reports is nil if libc10 is not mapped.
func (m AllocatorMode) ChooseSource(allocator, reports *Library) (lib *Library, why string) {
	switch {
	case m != AllocatorModeLight && allocator.Missing == "":
		return allocator, ""
	case reports == nil:
		return nil, cmp.Or(allocator.Missing, "libc10.so is not mapped")
	case reports.Missing != "" && m == AllocatorModeLight:
		return nil, reports.Missing
	case reports.Missing != "":
		return nil, allocator.Missing + "; " + reports.Missing
	}
	return reports, allocator.Missing
}

// FirstOfKind returns the first library of a kind, or nil.
func FirstOfKind(libs []*Library, kind Kind) *Library {
	if i := slices.IndexFunc(libs, func(l *Library) bool { return l.Kind == kind }); i >= 0 {
		return libs[i]
	}
	return nil
}

// AllocatorSource returns the kind of allocator events that the library provides.
func (l *Library) AllocatorSource() bpf.CudaAllocatorSource {
	if l.Kind == KindReports {
		return bpf.CudaAllocatorSourceSOURCE_REPORTS
	}
	return bpf.CudaAllocatorSourceSOURCE_TRACE
}

// dataMissingInReports lists the data that reports to profilers do not contain.
const dataMissingInReports = "requested sizes, streams, pools, segments, failed requests, and when streams have " +
	"finished with a block"

// ExplainReportLimits returns a sentence that explains which data is missing if an allocator is
// recorded through its reports.
func ExplainReportLimits(path, version, why string) string {
	if version != "" {
		path += " of PyTorch " + version
	}
	text := "PyTorch's allocations are recorded without " + dataMissingInReports
	if why == "" {
		return text
	}
	return fmt.Sprintf("%s: %s: %s", text, path, why)
}
