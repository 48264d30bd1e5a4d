package analyze

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/export/html"
	"github.com/gpurec/gpurec/analyze/export/perfetto"
	"github.com/gpurec/gpurec/analyze/export/pprof"
	"github.com/gpurec/gpurec/analyze/export/torchsnapshot"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/allocator"
	"github.com/gpurec/gpurec/analyze/report/api"
	"github.com/gpurec/gpurec/analyze/report/copies"
	"github.com/gpurec/gpurec/analyze/report/cudaerrors"
	"github.com/gpurec/gpurec/analyze/report/diff"
	"github.com/gpurec/gpurec/analyze/report/frag"
	"github.com/gpurec/gpurec/analyze/report/gaps"
	"github.com/gpurec/gpurec/analyze/report/gpu"
	"github.com/gpurec/gpurec/analyze/report/group"
	"github.com/gpurec/gpurec/analyze/report/hang"
	"github.com/gpurec/gpurec/analyze/report/kernels"
	"github.com/gpurec/gpurec/analyze/report/leaks"
	"github.com/gpurec/gpurec/analyze/report/memory"
	"github.com/gpurec/gpurec/analyze/report/oom"
	"github.com/gpurec/gpurec/analyze/report/processes"
	"github.com/gpurec/gpurec/analyze/report/rules"
	"github.com/gpurec/gpurec/analyze/report/stacks"
	"github.com/gpurec/gpurec/analyze/report/summary"
	"github.com/gpurec/gpurec/analyze/report/waits"
	"github.com/gpurec/gpurec/analyze/report/xid"
)

// Explain writes how every value of a report is computed; it needs no recording.
// It returns false for a report it does not know.
func Explain(out io.Writer, command string) (bool, error) {
	w := bufio.NewWriter(out)
	section := func(title string, columns ...report.Column) {
		fmt.Fprintf(w, "%s\n", title)
		for _, c := range columns {
			name := c.Key
			if c.Title != "" && !strings.EqualFold(c.Title, c.Key) {
				name += " (" + c.Title + ")"
			}
			fmt.Fprintf(w, "  %s\n      %s\n", name, c.About)
			isRank := func(c report.Column) bool { return c.Key == processes.RankColumn.Key }
			if c.Key == "pid" && !slices.ContainsFunc(columns, isRank) {
				r := &processes.RankColumn
				fmt.Fprintf(w, "  %s (%s)\n      %s\n", r.Key, r.Title, r.About)
			}
		}
	}
	switch command {
	case "leaks":
		section("facts", allocator.AllocatorFacts...)
		section("rows", append(slices.Clone(leaks.LeakColumns), leaks.LeakCourse)...)
		section("totals", leaks.LeakTotals...)
		section("suppressions_used", group.SuppressedColumns...)
	case "stacks":
		section("facts", stacks.StackFacts...)
		section("states", stacks.StateColumns...)
		section("inference", stacks.InferenceColumns...)
		section("truncated_in", stacks.EndColumns...)
		section("stacks", stacks.StackColumns...)
		section("totals", stacks.StackTotals...)
	case "summary":
		section("facts", append(slices.Clone(summary.SummaryFacts), allocator.AllocatorFacts...)...)
		section("hits", rules.SummaryHitColumns...)
		section("memory", memory.UseColumns...)
		section("allocators", allocator.AllocatorTableColumns...)
		section("pools", memory.PoolColumns...)
		section("leaks", leaks.LeakColumns...)
		section("calls", summary.CallColumns...)
		section("kernels", summary.KernelColumns...)
		section("processes", processes.ProcessColumns...)
		section("suppressions_used", group.SuppressedColumns...)
		section("totals", leaks.LeakTotals...)
	case "rules":
		section("facts", append(slices.Clone(rules.RuleFactColumns), rules.RuleColumns()...)...)
		section("hits", rules.HitColumns...)
		section("evidence", rules.EvidenceColumns...)
		section("suppressions_used", group.SuppressedColumns...)
		section("totals", rules.RuleTotalColumns...)
	case "gpu":
		section("verdicts", gpu.GPUVerdictColumns...)
		section("metrics", gpu.GPUMetricColumns...)
		section("throttling", gpu.ThrottleColumns...)
		section("health", gpu.HealthColumns...)
		section("processes", gpu.GPUProcessColumns...)
		section("totals", gpu.GPUTotals...)
	case "xid":
		section("facts", xid.XidFacts...)
		section("xids", xid.XidColumns...)
		section("launches_before", xid.LaunchColumns...)
		section("totals", xid.XidTotals...)
	case "api":
		section("facts", api.APIFacts...)
		section("api", slices.Concat(api.APIColumns, api.APIGroupColumns)...)
		section("totals", api.APITotals...)
	case "kernels":
		section("facts", kernels.KernelsFacts...)
		section("kernels", kernels.KernelsColumns...)
		section("shapes", kernels.ShapeColumns...)
		section("streams", kernels.KernelStreamColumns...)
		section("graphs", kernels.GraphColumns...)
		section("totals", kernels.KernelsTotals...)
	case "copies":
		section("facts", copies.CopyFacts...)
		section("bursts", copies.BurstColumns...)
		section("copies", copies.CopyColumns...)
		section("sites", copies.CopyPlaceColumns...)
		section("totals", copies.CopyTotals...)
	case "sync":
		section("facts", waits.WaitFacts...)
		section("sync", waits.WaitColumns...)
		section("threads", waits.WaitThreadColumns...)
		section("longest", waits.LongestColumns...)
		section("totals", waits.WaitTotals...)
	case "gaps":
		section("facts", gaps.GapFacts...)
		section("processes", gaps.TrackColumns...)
		section("distribution", gaps.SizeColumns...)
		section("gaps", gaps.GapColumns...)
		section("totals", gaps.GapTotals...)
	case "errors":
		section("facts", cudaerrors.ErrorFacts...)
		section("asynchronous", cudaerrors.FaultColumns...)
		section("suspects", xid.LaunchColumns...)
		section("invalid_frees", cudaerrors.InvalidFreeColumns...)
		section("errors", cudaerrors.ErrorColumns...)
		section("no_errors", cudaerrors.QuietColumns...)
		section("totals", cudaerrors.ErrorTotals...)
	case "hang":
		section("facts", hang.HangFacts...)
		section("processes", hang.HangProcessColumns...)
		section("threads", hang.HangThreadColumns...)
		section("launches", hang.LastLaunchColumns...)
		section("long_calls", hang.LongCallColumns...)
		section("polling", hang.PollColumns...)
		section("identities", processes.ProcessColumns...)
		section("totals", hang.HangTotals...)
	case "diff":
		section("facts", diff.DiffFacts...)
		section("setup", diff.SetupColumns...)
		section("names", diff.DiffNames...)
		section("totals", diff.DiffTotals...)
	case "memory":
		section("facts", memory.MemoryFacts...)
		section("levels", memory.LevelColumns...)
		section("holders", memory.HolderColumns...)
		section("pools", memory.PoolColumns...)
		section("reconcile", memory.ReconcileColumns...)
		section("devices", memory.DeviceMemoryColumns...)
		section("totals", memory.MemoryTotals...)
	case "allocator":
		section("facts", allocator.BooksFacts...)
		section("moments", allocator.MomentColumns...)
		section("allocators", allocator.BooksColumns...)
		section("peaks", allocator.PeakColumns...)
		section("events", allocator.EventColumns...)
		section("pools", allocator.PoolUseColumns...)
		section("totals", allocator.BooksTotals...)
	case "torch-snapshot":
		section("snapshot", torchsnapshot.SnapshotColumns...)
	case "oom":
		section("facts", oom.OomFacts...)
		section("failures", oom.OomColumns...)
		section("cached", oom.CachedColumns...)
		section("holders", oom.OomHolderColumns...)
		section("totals", oom.OomTotals...)
	case "frag":
		section("facts", slices.Concat(frag.LacksFact, frag.FragFacts)...)
		section("spaces", frag.SpaceColumns...)
		section("pins", frag.PinColumns...)
		section("trends", frag.FragTrendColumns...)
		section("moments", frag.FragMomentColumns...)
		section("maps", frag.MapColumns...)
		section("totals", frag.FragTotals...)
	case "report": // its other tables are those of the reports that they are named after
		section("peak", html.PeakHolderColumns...)
	case "pprof", "folded":
		section("samples", pprof.ProfileColumns()...)
	case "perfetto":
		section("tracks", perfetto.PerfettoColumns...)
	default:
		return false, nil
	}
	section("quality", append(slices.Clone(report.QualityColumns), report.SamplingColumns...)...)
	section("where launches were sampled", report.EstimatedLaunches, report.EstimatedCalls)
	return true, w.Flush()
}
