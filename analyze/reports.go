package analyze

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/allocator"
	"github.com/gpurec/gpurec/analyze/report/api"
	"github.com/gpurec/gpurec/analyze/report/blocks"
	"github.com/gpurec/gpurec/analyze/report/changes"
	"github.com/gpurec/gpurec/analyze/report/copies"
	"github.com/gpurec/gpurec/analyze/report/cpu"
	"github.com/gpurec/gpurec/analyze/report/cudaerrors"
	"github.com/gpurec/gpurec/analyze/report/frag"
	"github.com/gpurec/gpurec/analyze/report/gaps"
	"github.com/gpurec/gpurec/analyze/report/gpu"
	"github.com/gpurec/gpurec/analyze/report/graphs"
	"github.com/gpurec/gpurec/analyze/report/hang"
	"github.com/gpurec/gpurec/analyze/report/kernels"
	"github.com/gpurec/gpurec/analyze/report/leaks"
	"github.com/gpurec/gpurec/analyze/report/memory"
	"github.com/gpurec/gpurec/analyze/report/objects"
	"github.com/gpurec/gpurec/analyze/report/oom"
	"github.com/gpurec/gpurec/analyze/report/operations"
	"github.com/gpurec/gpurec/analyze/report/pointers"
	"github.com/gpurec/gpurec/analyze/report/ranks"
	"github.com/gpurec/gpurec/analyze/report/rules"
	"github.com/gpurec/gpurec/analyze/report/stacks"
	"github.com/gpurec/gpurec/analyze/report/steps"
	"github.com/gpurec/gpurec/analyze/report/streams"
	"github.com/gpurec/gpurec/analyze/report/summary"
	"github.com/gpurec/gpurec/analyze/report/waits"
	"github.com/gpurec/gpurec/analyze/report/xid"
)

// Reports are all reports. Those with a section of the HTML page are in the order of the page. The
// command line, the HTML page, the digest, the server for language models and the documents read this list.
var Reports = []*report.Definition{
	&summary.Definition,
	&rules.Definition,
	&leaks.Definition,
	&memory.Definition,
	&objects.Definition,
	&allocator.Definition,
	&blocks.Definition,
	&frag.Definition,
	&oom.Definition,
	&kernels.Definition,
	&graphs.Definition,
	&streams.Definition,
	&operations.Definition,
	&api.Definition,
	&copies.Definition,
	&waits.Definition,
	&gaps.Definition,
	&changes.Definition,
	&steps.Definition,
	&cpu.Definition,
	&gpu.Definition,
	&hang.Definition,
	&ranks.Definition,
	&xid.Definition,
	&pointers.Definition,
	&cudaerrors.Definition,
	&stacks.Definition,
}

// FindReport returns the report with a name or a former name, or nil if there is none.
func FindReport(name string) *report.Definition {
	if i := slices.IndexFunc(Reports, func(r *report.Definition) bool {
		return r.Name == name || slices.Contains(r.Aliases, name)
	}); i >= 0 {
		return Reports[i]
	}
	return nil
}
