//go:build linux

package library

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/process"
	"github.com/gpurec/gpurec/symbolize"
)

// allocatorFileName matches the file name of the library with PyTorch's caching allocator.
var allocatorFileName = regexp.MustCompile(`^libc10_cuda(-[0-9a-f]+)?\.so$`)

// recordTraceSymbol matches the start of the mangled name of record_trace, which the allocator
// calls for each event. The full name is
// c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::record_trace. PyTorch before 2.0
// has no namespace Native.
var recordTraceSymbol = regexp.MustCompile(
	`^_ZN3c104cuda20CUDACachingAllocator(6Native)?\d*.*DeviceCachingAllocator12record_traceE`,
)

// recordTraceParameters are the supported parameter lists of record_trace, one for each row of
// bpf.AllocatorFunctions. The device is an int or, in newer versions, a signed char; BPF programs
// read its lowest byte. They do not read later parameters.
var recordTraceParameters = []*regexp.Regexp{
	regexp.MustCompile(
		`^\(c10::[\w:]+::TraceEntry::Action, unsigned long, unsigned long, CUstream_st\*, (int|signed char), std::pair<unsigned long long, unsigned long long>, std::shared_ptr<c10::GatheredContext>\)$`,
	),
	regexp.MustCompile(
		`^\(c10::[\w:]+::TraceEntry::Action, (unsigned )?long, unsigned long, CUstream_st\*, (int|signed char), std::shared_ptr<c10::GatheredContext>\)$`,
	),
}

// findRecordTraceProbe returns the probe of record_trace, or the reason why it cannot be probed.
func findRecordTraceProbe(object *symbolize.Object, code *os.File) (probes []Probe, missing string, err error) {
	machine, err := readELFMachine(code)
	if err != nil {
		return nil, "", err
	}
	missing = "it has no function record_trace that could be probed: its symbols are stripped, or PyTorch is older " +
		"than 2.2"
	for symbol := range object.Symbols() {
		if !recordTraceSymbol.MatchString(symbol.Name) {
			continue
		}
		full := symbolize.DemangleFull(symbol.Name)
		row, known := findRecordTraceRow(full)
		if !known {
			missing = "gpurec supports record_trace of PyTorch 2.2 to 2.11, not " + full
			continue
		}
		offset, ok := object.FileOffset(symbol.Start)
		if !ok {
			continue
		}
		text := make([]byte, 32)
		n, err := code.ReadAt(text, int64(offset))
		if n == 0 {
			return nil, "", err
		}
		skip, emulated := chooseProbeOffset(machine, text[:n])
		return []Probe{
			{
				Symbol:     format.SourceTrace,
				Cookie:     bpf.AllocatorCookie(row),
				FileOffset: offset + uint64(skip),
				Skipped:    skip,
				Emulated:   emulated,
			},
		}, "", nil
	}
	return nil, missing, nil
}

// findRecordTraceRow returns the row of bpf.AllocatorFunctions for a demangled name with
// parameters.
func findRecordTraceRow(full string) (row int, known bool) {
	_, parameters, _ := strings.Cut(full, "record_trace")
	for row, list := range recordTraceParameters {
		if list.MatchString(parameters) {
			return row, true
		}
	}
	return 0, false
}

// ReadTorchVersion returns the version of PyTorch that a library belongs to. It reads version.py
// near the library, and returns "" if the version is unknown.
func ReadTorchVersion(p *process.Process, library string) string {
	file, err := p.OpenRegular(filepath.Join(filepath.Dir(library), "..", "version.py"), 0)
	if err != nil {
		return ""
	}
	defer file.Close()
	text, err := process.ReadAtMost(file, 64<<10) // usual size: some hundred bytes
	if err != nil {
		return ""
	}
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, "__version__ = "); ok {
			return strings.Trim(strings.TrimSpace(value), `'"`)
		}
	}
	return ""
}

// ReadAllocatorConf returns the configuration of PyTorch's allocator in the environment of the
// process, or "" if there is none.
func ReadAllocatorConf(p *process.Process) string {
	environ, err := p.ReadEnvironment()
	if err != nil {
		return ""
	}
	conf := ""
	for kv := range strings.SplitSeq(environ, "\x00") {
		// The newer name PYTORCH_ALLOC_CONF has priority.
		for _, name := range []string{"PYTORCH_CUDA_ALLOC_CONF=", "PYTORCH_ALLOC_CONF="} {
			if value, ok := strings.CutPrefix(kv, name); ok && (conf == "" || name == "PYTORCH_ALLOC_CONF=") {
				conf = value
			}
		}
	}
	return conf
}

// ExplainMissingAllocator returns a sentence that explains why events of an allocator are not
// recorded.
func ExplainMissingAllocator(path, version, why string) string {
	if version != "" {
		path += " of PyTorch " + version
	}
	return fmt.Sprintf("PyTorch's allocations are not recorded, only CUDA's: %s: %s", path, why)
}
