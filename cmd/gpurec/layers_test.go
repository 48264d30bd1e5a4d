package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	slashpath "path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
)

// mayImport is the import map of ARCHITECTURE.md. It lists the folders and modules that each folder
// may import in addition to the standard library. Folder names omit the module path. A new folder
// needs a line here and in ARCHITECTURE.md. FOLDER/* covers the subfolders without a line of their
// own.
var mayImport = map[string][]string{
	"format": {
		"format/columnwriter",
		"format/output",
		"github.com/parquet-go/parquet-go",
		"github.com/klauspost/compress/zstd",
		"golang.org/x/sys",
	},
	"bpf":                {"github.com/cilium/ebpf"},
	"scripts/prose":      {},
	"scripts/gate":       {"internal/testclass"},
	"internal/testclass": {},
	"internal/pollfd":    {"golang.org/x/sys"},
	"scripts/compare-cupti": {
		"analyze/model/activity", "analyze/model/idle",
		"analyze/model/timeline",
		"analyze/query",
		"format",
		"symbolize",
	},
	"symbolize": {
		"symbolize/dwarf",
		"symbolize/elffile",
		"github.com/ianlancetaylor/demangle",
		"github.com/ulikunitz/xz",
	},

	"record": {
		"format",
		"bpf",
		"symbolize",
		"record/clock",
		"record/host",
		"record/process",
		"record/library",
		"record/privilege",
		"record/rows",
		"record/ring",
		"record/overhead",
		"record/probe",
		"record/progress",
		"record/sampling",
		"record/communicator",
		"record/kernelargs",
		"record/liveset",
		"record/torchallocator",
		"record/rowwriter",
		"record/target",
		"record/threadstate",
		"record/review",
		"record/trigger",
		"record/hostcontext",
		"record/hostmetric",
		"record/hoststack",
		"record/interpreter",
		"record/hold",
		"record/xid",
		"record/nvml",
		"record/unwind",
		"record/unwind/tablecache",
		"github.com/cilium/ebpf",
		"golang.org/x/sys",
	},
	"record/clock":   {"golang.org/x/sys"},
	"record/host":    {"format", "record/clock", "golang.org/x/sys"},
	"record/process": {"format", "symbolize", "record/host", "record/identity", "golang.org/x/sys"},
	"record/library": {
		"format",
		"symbolize",
		"symbolize/elffile",
		"bpf",
		"record/process",
		"golang.org/x/arch",
		"golang.org/x/sys",
	},
	"record/privilege": {
		"record/host",
		"record/process",
		"github.com/cilium/ebpf",
		"golang.org/x/sys",
		"kernel.org/pub/linux/libs/security/libcap/cap",
		"kernel.org/pub/linux/libs/security/libcap/psx",
	},
	"record/rows":     {"format"},
	"record/trigger":  {"format", "record/liveset", "golang.org/x/time"},
	"record/review":   {"format", "record/liveset", "record/trigger"},
	"record/liveset":  {"format"},
	"record/ring":     {"bpf", "internal/pollfd", "record/clock", "github.com/cilium/ebpf", "golang.org/x/sys"},
	"record/stack":    {"format", "symbolize", "bpf", "record/process", "record/unwind", "golang.org/x/sys"},
	"record/overhead": {"format", "golang.org/x/sys"},
	"record/probe": {
		"format",
		"symbolize",
		"bpf",
		"record/clock",
		"record/kernelargs",
		"record/library",
		"record/overhead",
		"record/privilege",
		"record/process",
		"record/ring",
		"record/unwind",
		"github.com/cilium/ebpf",
		"golang.org/x/sys",
	},
	"record/sampling": {
		"format",
		"record/clock",
		"record/overhead",
		"record/privilege",
		"record/probe",
		"golang.org/x/sys",
	},
	"record/communicator": {"symbolize", "golang.org/x/sys"},
	"record/kernelargs": {
		"format",
		"symbolize",
		"symbolize/elffile",
		"record/process",
		"github.com/klauspost/compress/zstd",
		"github.com/pierrec/lz4/v4",
		"golang.org/x/sys",
	},
	"record/progress":       {"format", "symbolize", "record/clock", "record/probe", "golang.org/x/sys"},
	"record/torchallocator": {"golang.org/x/sys"},
	"record/rowwriter": {
		"format",
		"symbolize",
		"bpf",
		"record/clock",
		"record/communicator",
		"record/kernelargs",
		"record/liveset",
		"record/overhead",
		"record/probe",
		"record/ring",
		"record/rows",
		"record/stack",
		"record/unwind",
	},
	"record/target": {
		"format",
		"bpf",
		"record/clock",
		"record/host",
		"record/library",
		"record/privilege",
		"record/probe",
		"record/process",
		"record/unwind",
		"github.com/cilium/ebpf",
	},
	"record/hold": {
		"bpf",
		"golang.org/x/arch",
		"symbolize/elffile",
		"record/clock",
		"record/library",
		"record/process",
		"github.com/cilium/ebpf",
		"golang.org/x/sys",
	},
	"record/xid": {
		"format",
		"record/clock",
		"record/host",
		"record/rows",
		"github.com/cilium/ebpf",
		"golang.org/x/sys",
	},
	"record/nvml": {
		"format",
		"record/clock",
		"record/host",
		"record/rows",
		"record/xid",
		"github.com/NVIDIA/go-nvml",
		"golang.org/x/sys",
	},
	"record/ps": {
		"format",
		"record/clock",
		"record/identity",
		"record/library",
		"record/nvml",
		"record/process",
		"record/rows",
		"golang.org/x/sys",
	},
	"record/hoststack": {
		"format",
		"symbolize",
		"record/clock",
		"record/hoststack/cpython",
		"record/hoststack/snapshot",
		"record/privilege",
		"record/process",
		"record/unwind/remote",
		"golang.org/x/sys",
	},
	"record/hostcontext": {
		"bpf",
		"format",
		"symbolize",
		"record/clock",
		"record/hoststack",
		"record/hostcontext/switches",
		"record/privilege",
		"record/process",
		"golang.org/x/sys",
	},
	"record/hostcontext/switches": {
		"bpf", "format", "record/host", "record/privilege", "github.com/cilium/ebpf", "golang.org/x/sys",
	},
	"record/threadstate": {"format", "record/clock", "record/hoststack", "record/process"},
	"record/hoststack/snapshot": {
		"bpf", "record/host", "record/privilege", "github.com/cilium/ebpf", "golang.org/x/sys",
	},
	"record/hoststack/cpython": {},
	"record/interpreter": {
		"format",
		"symbolize",
		"symbolize/elffile",
		"record/clock",
		"record/hoststack/cpython",
		"record/process",
		"record/rows",
		"record/unwind/remote",
		"golang.org/x/sys",
	},
	"record/hostmetric": {
		"format", "record/clock", "record/process", "record/rows", "golang.org/x/sys",
	},
	"record/unwind/remote":     {"symbolize", "go.opentelemetry.io/ebpf-profiler"},
	"record/simtest":           {"internal/testclass", "github.com/NVIDIA/go-nvml", "golang.org/x/sys"},
	"record/identity":          {"format"},
	"record/unwind/tablecache": {"golang.org/x/sys"},
	"record/unwind": {
		"format",
		"internal/pollfd",
		"record/unwind/tablecache",
		"go.opentelemetry.io/ebpf-profiler",
		"github.com/cilium/ebpf",
		"github.com/elastic/go-perf",
	},

	"analyze/units":            {},
	"analyze/stats":            {"analyze/units"},
	"analyze/changepoint":      {},
	"analyze/spill":            {},
	"analyze/catalog":          {"format", "analyze/units"},
	"analyze/query":            {"format", "symbolize", "analyze/units"},
	"analyze/model/addrmap":    {},
	"analyze/model/origin":     {},
	"analyze/model/collective": {"format", "analyze/model/timeline", "analyze/query", "analyze/units"},
	"analyze/model/job": {
		"format",
		"analyze/model/collective",
		"analyze/model/facts",
		"analyze/model/timeline",
		"analyze/units",
	},
	"analyze/model/clocks": {
		"format",
		"analyze/model/collective",
		"analyze/model/job",
		"analyze/model/timeline",
		"analyze/catalog",
		"analyze/query",
		"analyze/units",
	},
	"analyze/model/waitgraph": {"analyze/model/collective"},
	"analyze/model/rankstate": {
		"format",
		"analyze/model/census",
		"analyze/model/collective",
		"analyze/model/job",
		"analyze/model/threadstate",
		"analyze/model/timeline",
		"analyze/model/waitgraph",
		"analyze/query",
		"analyze/catalog",
		"analyze/units",
	},
	"analyze/model/census":   {"analyze/units"},
	"analyze/model/sampling": {"format", "analyze/catalog", "analyze/query", "analyze/units"},
	"analyze/model/stack":    {"format", "symbolize", "analyze/query", "analyze/units"},
	"analyze/model/livemem":  {"format", "analyze/model/addrmap", "analyze/model/origin", "analyze/units"},
	"analyze/model/caching": {
		"format",
		"analyze/model/addrmap",
		"analyze/model/origin",
		"analyze/query",
		"analyze/units",
	},

	"analyze/model/facts": {
		"format",
		"analyze/model/origin",
		"analyze/model/sampling",
		"analyze/model/caching",
		"analyze/catalog",
		"analyze/units",
	},
	"analyze/model/timeline": {
		"format",
		"symbolize",
		"analyze/model/facts",
		"analyze/model/addrmap",
		"analyze/model/origin",
		"analyze/model/sampling",
		"analyze/model/stack",
		"analyze/model/livemem",
		"analyze/model/blockreadings",
		"analyze/model/caching",
		"analyze/query",
		"analyze/stats",
		"analyze/catalog",
		"analyze/units",
	},
	"analyze/model/calls": {
		"format",
		"symbolize",
		"analyze/model/timeline",
		"analyze/model/facts",
		"analyze/model/origin",
		"analyze/model/sampling",
		"analyze/model/stack",
		"analyze/model/livemem",
		"analyze/query",
		"analyze/catalog",
		"analyze/units",
	},
	"analyze/model/progress":  {"format", "analyze/model/timeline"},
	"analyze/model/straggler": {},
	"analyze/model/ranksteps": {
		"format",
		"analyze/catalog",
		"analyze/model/activity",
		"analyze/model/collective",
		"analyze/model/hosttime",
		"analyze/model/job",
		"analyze/model/origin",
		"analyze/model/steps",
		"analyze/model/straggler",
		"analyze/model/threadstate",
		"analyze/model/timeline",
		"analyze/query",
		"analyze/units",
	},
	"analyze/model/hosttime": {
		"format",
		"symbolize",
		"analyze/model/timeline",
		"analyze/model/stack",
		"analyze/model/origin",
		"analyze/query",
		"analyze/units",
	},
	"analyze/model/activity": {
		"format",
		"analyze/spill",
		"analyze/model/timeline",
		"analyze/model/progress",
		"analyze/model/origin",
		"analyze/query",
		"analyze/stats",
		"analyze/catalog",
		"analyze/units",
	},
	"analyze/model/idle": {
		"format",
		"analyze/model/timeline",
		"analyze/model/activity",
		"analyze/model/hosttime",
		"analyze/model/origin",
		"analyze/query",
		"analyze/stats",
		"analyze/units",
	},
	"analyze/model/survey": {
		"format",
		"analyze/model/caching",
		"analyze/model/calls",
		"analyze/model/hostmem",
		"analyze/model/hosttime",
		"analyze/model/livemem",
		"analyze/model/objects",
		"analyze/model/timeline",
		"analyze/query",
	},
	"analyze/model/steps": {
		"format",
		"symbolize",
		"analyze/model/timeline",
		"analyze/model/origin",
		"analyze/model/stack",
		"analyze/query",
		"analyze/catalog",
		"analyze/units",
	},
	"analyze/model/fault": {
		"format",
		"analyze/model/timeline",
		"analyze/model/facts",
		"analyze/model/addrmap",
		"analyze/model/origin",
		"analyze/model/livemem",
		"analyze/model/caching",
		"analyze/query",
		"analyze/stats",
		"analyze/catalog",
		"analyze/units",
	},
	"analyze/model/kernelargs": {"format", "analyze/model/timeline"},
	"analyze/model/graph": {
		"format",
		"symbolize",
		"analyze/model/timeline",
		"analyze/model/facts",
		"analyze/catalog",
		"analyze/units",
	},
	"analyze/model/objects": {
		"format",
		"analyze/model/addrmap",
		"analyze/model/timeline",
		"analyze/model/origin",
		"analyze/model/livemem",
		"analyze/catalog",
		"analyze/units",
	},
	"analyze/model/hostmem": {
		"format",
		"analyze/model/timeline",
		"analyze/model/facts",
		"analyze/model/origin",
		"analyze/model/livemem",
		"analyze/stats",
		"analyze/units",
	},
	"analyze/model/threadstate": {
		"format",
		"symbolize",
		"analyze/model/stack",
		"analyze/model/timeline",
		"analyze/catalog",
		"analyze/units",
	},
	"analyze/model/change": {
		"format",
		"analyze/changepoint",
		"analyze/model/caching",
		"analyze/model/hosttime",
		"analyze/model/livemem",
		"analyze/model/metric",
		"analyze/model/origin",
		"analyze/model/sampling",
		"analyze/model/steps",
		"analyze/model/timeline",
		"analyze/query",
		"analyze/stats",
	},
	"analyze/model/metric": {
		"format",
		"analyze/model/timeline",
		"analyze/model/facts",
		"analyze/model/origin",
		"analyze/query",
		"analyze/stats",
		"analyze/catalog",
	},
	"analyze/model/blockreadings": {
		"format",
		"analyze/model/caching",
		"analyze/query",
		"analyze/units",
	},
	"analyze/model/state": {
		"format",
		"analyze/model/timeline",
		"analyze/model/facts",
		"analyze/model/origin",
		"analyze/model/livemem",
		"analyze/model/caching",
	},

	"format/columnwriter": {"github.com/parquet-go/parquet-go"},
	"format/output":       {},

	"symbolize/dwarf":   {"symbolize/elffile"},
	"symbolize/elffile": {},
	"symbolize/elftest": {"internal/testclass"}, // used only by tests

	"analyze/report": {
		"format",
		"analyze/model/job",
		"analyze/model/sampling",
		"analyze/model/survey",
		"analyze/model/timeline",
		"analyze/query",
		"analyze/catalog",
		"analyze/units",
	},
	"analyze/report/quality":     append([]string{"analyze/report"}, belowReports...),
	"analyze/report/frames":      append([]string{"analyze/report"}, belowReports...),
	"analyze/report/hostcause":   append([]string{"analyze/report"}, belowReports...),
	"analyze/report/cachegrowth": append([]string{"analyze/report"}, belowReports...),
	"analyze/report/earlier": append(
		[]string{"analyze/report", "analyze/report/processes"},
		belowReports...),
	"analyze/report/gputime":   append([]string{"analyze/report"}, belowReports...),
	"analyze/report/group":     append([]string{"analyze/report"}, belowReports...),
	"analyze/report/processes": append([]string{"analyze/report"}, belowReports...),
	"analyze/report/byrank":    append([]string{"analyze/report"}, belowReports...),

	// A report imports no other report, except the reports in its own list.
	"analyze/report/*":          reportMayUse(),
	"analyze/report/changes":    reportMayUse("gpu"),
	"analyze/report/cudaerrors": reportMayUse("xid"),
	"analyze/report/leaks":      reportMayUse("allocator"),
	"analyze/report/objects":    reportMayUse("memory"),
	"analyze/report/oom":        reportMayUse("frag", "memory"),
	"analyze/report/pointers":   reportMayUse("cudaerrors"),
	"analyze/report/ranks":      reportMayUse("hang"),
	"analyze/report/rules": reportMayUse(
		"changes",
		"copies",
		"cudaerrors",
		"gaps",
		"gpu",
		"hang",
		"kernels",
		"leaks",
		"objects",
		"oom",
		"pointers",
		"ranks",
		"waits",
		"xid",
	),
	"analyze/report/summary": reportMayUse("allocator", "leaks", "memory", "rules"),

	"analyze/render":               {"symbolize", "analyze/report", "analyze/units"},
	"analyze/export/html":          reportMayUse("...", "analyze", "analyze/render"),
	"analyze/export/digest":        reportMayUse("rules", "analyze"),
	"analyze/export/findings":      reportMayUse("rules"),
	"analyze/export/perfetto":      reportMayUse("memory", "google.golang.org/protobuf/encoding/protowire"),
	"analyze/export/rows":          reportMayUse(),
	"analyze/export/sql":           reportMayUse(),
	"analyze/export/pprof":         reportMayUse("github.com/google/pprof/profile"),
	"analyze/export/torchsnapshot": reportMayUse(),

	"analyze":      {"analyze/report/..."},
	"analyze/live": {"format", "analyze/model/...", "analyze/catalog", "analyze/query", "analyze/units"},
	"analyze/verdict": {
		"analyze/live",
		"analyze/model/origin",
		"analyze/model/survey",
		"analyze/model/timeline",
		"analyze/query",
		"analyze/report",
		"analyze/report/gpu",
		"analyze/report/rules",
	},
	"analyze/mcp": {
		"format",
		"analyze",
		"analyze/export/digest",
		"analyze/model/timeline",
		"analyze/query",
		"analyze/render",
		"analyze/report",
		"analyze/units",
		"github.com/google/jsonschema-go",
		"github.com/modelcontextprotocol/go-sdk",
	},

	"analyze/analyzetest/viewers":    {"internal/testclass", "analyze/analyzetest"},
	"analyze/analyzetest/gpuprogram": {"format", "analyze/analyzetest", "analyze/model/activity"},
	"analyze/analyzetest/rankjob": {
		"format",
		"analyze/analyzetest",
		"analyze/analyzetest/gpuprogram",
		"analyze/model/...",
	},
	"analyze/analyzetest/rulecases": {
		"format",
		"analyze/analyzetest",
		"analyze/analyzetest/gpuprogram",
		"analyze/catalog",
		"analyze/model/...",
	},
	"analyze/analyzetest": {
		"format",
		"analyze/model/...",
		"analyze/query",
		"analyze/catalog",
		"analyze/units",
		"analyze/report",
		"analyze/render",
	},

	"agent": {"format", "format/output", "record", "record/trigger", "golang.org/x/sys"},
	"ship": {
		"agent", "format",
		"github.com/prometheus/client_golang",
		"github.com/prometheus/common",
		"github.com/prometheus/client_model",
	},
	"cmd/gpurec": {
		"agent",
		"ship",
		"cmd/gpurec/agentconfig",
		"format",
		"format/output",
		"record",
		"record/communicator",
		"record/host",
		"record/hostcontext",
		"record/hoststack",
		"record/library",
		"record/nvml",
		"record/privilege",
		"record/probe",
		"record/process",
		"record/progress",
		"record/ps",
		"record/torchallocator",
		"record/trigger",
		"symbolize",
		"analyze/catalog",
		"analyze/export/digest",
		"analyze/live",
		"analyze/export/findings",
		"analyze/mcp",
		"analyze/model/census",
		"analyze/model/threadstate",
		"analyze/model/timeline",
		"analyze/units",
		"analyze/verdict",
		"cmd/gpurec/analyze",
		"cmd/gpurec/command",
		"cmd/gpurec/memory",
		"cmd/gpurec/message",
		"cmd/gpurec/size",
		"cmd/gpurec/terminal",
		"cmd/gpurec/top",
		"charm.land/bubbletea/v2",
		"github.com/spf13/cobra",
		"github.com/spf13/pflag",
		"golang.org/x/sys",
		"golang.org/x/term",
	},
	"cmd/gpurec/analyze": {
		"format",
		"format/output",
		"symbolize",
		"analyze/...",
		"cmd/gpurec/message",
		"cmd/gpurec/size",
		"cmd/gpurec/terminal",
		"github.com/google/pprof",
		"github.com/spf13/cobra",
		"github.com/spf13/pflag",
		"golang.org/x/term",
	},
	"cmd/gpurec/top": {"analyze/live", "analyze/catalog", "analyze/units", "charm.land/bubbletea/v2"},
	"cmd/gpurec/memory": {
		"record",
		"record/torchallocator",
		"analyze/model/caching",
		"analyze/query",
		"analyze/render",
		"analyze/report",
		"analyze/units",
	},
	"cmd/gpurec/agentconfig": {
		"agent",
		"format",
		"record",
		"record/library",
		"record/probe",
		"record/trigger",
		"cmd/gpurec/size",
		"go.yaml.in/yaml/v3",
	},
	"cmd/gpurec/command":  {"cmd/gpurec/message", "github.com/spf13/cobra"},
	"cmd/gpurec/message":  {"format", "format/output"},
	"cmd/gpurec/size":     {},
	"cmd/gpurec/terminal": {"golang.org/x/term"},
}

// belowReports lists the folders and modules that every report may import.
var belowReports = []string{
	"format",
	"symbolize",
	"analyze/model/addrmap",
	"analyze/model/origin",
	"analyze/model/sampling",
	"analyze/model/stack",
	"analyze/model/livemem",
	"analyze/model/blockreadings",
	"analyze/model/caching",
	"analyze/model/census",
	"analyze/model/facts",
	"analyze/model/timeline",
	"analyze/model/calls",
	"analyze/model/fault",
	"analyze/model/graph",
	"analyze/model/hostmem",
	"analyze/model/kernelargs",
	"analyze/model/metric",
	"analyze/model/change",
	"analyze/changepoint",
	"analyze/model/activity",
	"analyze/model/collective",
	"analyze/model/hosttime",
	"analyze/model/idle",
	"analyze/model/job",
	"analyze/model/steps",
	"analyze/model/objects",
	"analyze/model/state",
	"analyze/model/straggler",
	"analyze/model/survey",
	"analyze/model/threadstate",
	"analyze/model/clocks",
	"analyze/model/rankstate",
	"analyze/model/ranksteps",
	"analyze/model/waitgraph",
	"analyze/query",
	"analyze/stats",
	"analyze/catalog",
	"analyze/units",
}

// reportMayUse returns the folders and modules that one report or export may import: belowReports
// and others. A name without a slash is a report; "..." means all reports.
func reportMayUse(others ...string) []string {
	may := append(
		[]string{
			"analyze/report",
			"analyze/report/quality",
			"analyze/report/frames",
			"analyze/report/earlier",
			"analyze/report/gputime",
			"analyze/report/hostcause",
			"analyze/report/cachegrowth",
			"analyze/report/group",
			"analyze/report/processes",
		},
		belowReports...)
	for _, o := range others {
		if !strings.Contains(o, "/") && o != "analyze" {
			o = "analyze/report/" + o
		}
		may = append(may, o)
	}
	return may
}

const module = "github.com/gpurec/gpurec/"

func TestImportDirections(t *testing.T) {
	testclass.Unit(t)
	const root = "../.."
	seen := make(map[string]bool)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() &&
			(slices.Contains([]string{"build", "testdata", "examples"}, d.Name()) || strings.HasPrefix(d.Name(), ".") && path != root) {
			return filepath.SkipDir
		}
		if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		folder, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		row := filepath.ToSlash(folder)
		if _, listed := mayImport[row]; !listed {
			row = slashpath.Join(slashpath.Dir(row), "*")
		}
		allowed, listed := mayImport[row]
		if !listed {
			t.Errorf("folder %s is not in mayImport", folder)
			return nil
		}
		seen[row] = true
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, dep := range breaches(file, allowed) {
			t.Errorf("%s: %s must not import %s", path, folder, dep)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for folder := range mayImport {
		if !seen[folder] {
			t.Errorf("mayImport lists %s, which has no Go files", folder)
		}
	}
}

// breaches returns the imports of a file that are not on the list.
func breaches(file *ast.File, allowed []string) (list []string) {
	for _, spec := range file.Imports {
		if dep := strings.Trim(spec.Path.Value, `"`); !isAllowed(dep, allowed) {
			list = append(list, dep)
		}
	}
	return list
}

func TestBreachOfLayersIsFound(t *testing.T) {
	testclass.Unit(t)
	const source = `package survey
import (
	"slices"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/spf13/cobra"
)`
	file, err := parser.ParseFile(token.NewFileSet(), "survey.go", source, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{module + "analyze/report", "github.com/spf13/cobra"}
	if got := breaches(file, mayImport["analyze/model/survey"]); !slices.Equal(got, want) {
		t.Errorf("breaches %q, want %q", got, want)
	}
}

// TestLayersHaveNoCycle checks the lists in mayImport: no folder may import itself by way of others. Folders that may
// import everything below a folder are above it.
func TestLayersHaveNoCycle(t *testing.T) {
	testclass.Unit(t)
	const visiting, done = 1, 2
	state := make(map[string]int)
	var visit func(folder string, path []string)
	visit = func(folder string, path []string) {
		switch path = append(path, folder); state[folder] {
		case done:
			return
		case visiting:
			t.Errorf("a cycle of imports: %s", strings.Join(path, " -> "))
			return
		}
		state[folder] = visiting
		for _, dep := range mayImport[folder] {
			if in, all := strings.CutSuffix(dep, "/..."); all {
				for other := range mayImport {
					if isUnder(other, in) {
						visit(other, path)
					}
				}
				continue
			}
			visit(dep, path)
		}
		state[folder] = done
	}
	for folder := range mayImport {
		visit(folder, nil)
	}
}

// TestModelImportsNoReport checks the lists in mayImport: no model package may import a report, and
// no report may import a package that renders or exports reports.
func TestModelImportsNoReport(t *testing.T) {
	testclass.Unit(t)
	never := []struct{ folder, imports string }{
		{"analyze/model", "analyze/report"},
		{"analyze/model", "analyze/render"},
		{"analyze/model", "analyze/export"},
		{"analyze/report", "analyze/render"},
		{"analyze/report", "analyze/export"},
	}
	for folder, allowed := range mayImport {
		for _, n := range never {
			for _, dep := range allowed {
				if isUnder(folder, n.folder) && (isUnder(dep, n.imports) || dep == "analyze") {
					t.Errorf("%s must never import %s", folder, dep)
				}
			}
		}
	}
}

// isUnder reports whether folder equals in or is below it.
func isUnder(folder, in string) bool {
	return folder == in || strings.HasPrefix(folder, in+"/")
}

// isAllowed reports whether dep is a package of the standard library or on the list. A module on
// the list includes its packages. FOLDER/... includes the folder and everything below it.
func isAllowed(dep string, allowed []string) bool {
	first, _, _ := strings.Cut(dep, "/")
	if !strings.Contains(first, ".") {
		return true
	}
	if ours, ok := strings.CutPrefix(dep, module); ok {
		return slices.ContainsFunc(allowed, func(a string) bool {
			in, all := strings.CutSuffix(a, "/...")
			return ours == a || all && isUnder(ours, in)
		})
	}
	return slices.ContainsFunc(allowed, func(a string) bool { return dep == a || strings.HasPrefix(dep, a+"/") })
}
