package analyze

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
)

// RenderOptions say what a report looks like.
type RenderOptions struct {
	// Format is one of Formats; "" is the first.
	Format string
	// Width is the width of the terminal in characters; 0 does not cut lines.
	Width int
	// NoHeader leaves out headings (table, csv, md).
	NoHeader bool
	// Color paints verdicts and severities in tables for terminals.
	Color bool
	// ASCII draws tables without characters that only UTF-8 has, as far as they are gpurec's own.
	ASCII bool
}

// Formats lists the formats that Render knows, the default first.
func Formats() []string { return []string{"table", "json", "csv", "md"} }

// FormatError says that Render does not know a format.
type FormatError struct{ Name string }

func (e *FormatError) Error() string {
	return fmt.Sprintf("unknown format %q; there are %s", e.Name, strings.Join(Formats(), ", "))
}

// Render writes a report. Text and Markdown are for people: units are chosen, lines
// cut to the width, characters that could steer a terminal replaced. JSON and CSV
// are for programs: bare numbers, whole strings. The only errors are *FormatError
// and those of out.
func Render(out io.Writer, r *Report, opt RenderOptions) error {
	if err := CheckFormat(opt.Format); err != nil {
		return err
	}
	w := bufio.NewWriter(out)
	var err error
	switch opt.Format {
	case "json":
		err = renderJSON(w, r)
	case "csv":
		err = renderCSV(w, r, opt)
	case "md":
		renderMarkdown(w, r, opt)
	default:
		if !opt.ASCII {
			renderText(w, r, opt)
			break
		}
		var text strings.Builder
		all := bufio.NewWriter(&text)
		renderText(all, r, opt)
		if err = all.Flush(); err == nil {
			_, err = asciiForms.WriteString(w, text.String())
		}
	}
	if err != nil {
		return err
	}
	return w.Flush()
}

// CheckFormat returns a *FormatError if Render does not know the format.
func CheckFormat(name string) error {
	if name == "" || slices.Contains(Formats(), name) {
		return nil
	}
	return &FormatError{name}
}

// Explain writes how every value of a report is computed; it needs no recording.
// It returns false for a report it does not know.
func Explain(out io.Writer, command string) (bool, error) {
	w := bufio.NewWriter(out)
	section := func(title string, columns ...Column) {
		fmt.Fprintf(w, "%s\n", title)
		for _, c := range columns {
			name := c.Key
			if c.Title != "" && !strings.EqualFold(c.Title, c.Key) {
				name += " (" + c.Title + ")"
			}
			fmt.Fprintf(w, "  %s\n      %s\n", name, c.About)
			isRank := func(c Column) bool { return c.Key == rankColumn.Key }
			if c.Key == "pid" && !slices.ContainsFunc(columns, isRank) {
				r := &rankColumn
				fmt.Fprintf(w, "  %s (%s)\n      %s\n", r.Key, r.Title, r.About)
			}
		}
	}
	switch command {
	case "leaks":
		section("facts", allocatorFacts...)
		section("rows", append(slices.Clone(leakColumns), leakCourse)...)
		section("totals", leakTotals...)
		section("suppressions_used", suppressedColumns...)
	case "stacks":
		section("facts", stackFacts...)
		section("states", stateColumns...)
		section("inference", inferenceColumns...)
		section("truncated_in", endColumns...)
		section("stacks", stackColumns...)
		section("totals", stackTotals...)
	case "summary":
		section("facts", append(slices.Clone(summaryFacts), allocatorFacts...)...)
		section("hits", summaryHitColumns...)
		section("memory", useColumns...)
		section("allocators", allocatorTableColumns...)
		section("pools", poolColumns...)
		section("leaks", leakColumns...)
		section("calls", callColumns...)
		section("kernels", kernelColumns...)
		section("processes", processColumns...)
		section("suppressions_used", suppressedColumns...)
		section("totals", leakTotals...)
	case "rules":
		section("facts", append(slices.Clone(ruleFactColumns), ruleColumns()...)...)
		section("hits", hitColumns...)
		section("evidence", evidenceColumns...)
		section("suppressions_used", suppressedColumns...)
		section("totals", ruleTotalColumns...)
	case "gpu":
		section("verdicts", gpuVerdictColumns...)
		section("metrics", gpuMetricColumns...)
		section("throttling", throttleColumns...)
		section("health", healthColumns...)
		section("processes", gpuProcessColumns...)
		section("totals", gpuTotals...)
	case "xid":
		section("facts", xidFacts...)
		section("xids", xidColumns...)
		section("launches_before", launchColumns...)
		section("totals", xidTotals...)
	case "api":
		section("facts", apiFacts...)
		section("api", slices.Concat(apiColumns, apiGroupColumns)...)
		section("totals", apiTotals...)
	case "kernels":
		section("facts", kernelsFacts...)
		section("kernels", kernelsColumns...)
		section("shapes", shapeColumns...)
		section("streams", kernelStreamColumns...)
		section("graphs", graphColumns...)
		section("totals", kernelsTotals...)
	case "copies":
		section("facts", copyFacts...)
		section("bursts", burstColumns...)
		section("copies", copyColumns...)
		section("sites", copyPlaceColumns...)
		section("totals", copyTotals...)
	case "sync":
		section("facts", waitFacts...)
		section("sync", waitColumns...)
		section("threads", waitThreadColumns...)
		section("longest", longestColumns...)
		section("totals", waitTotals...)
	case "gaps":
		section("facts", gapFacts...)
		section("processes", trackColumns...)
		section("distribution", sizeColumns...)
		section("gaps", gapColumns...)
		section("totals", gapTotals...)
	case "errors":
		section("facts", errorFacts...)
		section("asynchronous", faultColumns...)
		section("suspects", launchColumns...)
		section("invalid_frees", invalidFreeColumns...)
		section("errors", errorColumns...)
		section("no_errors", quietColumns...)
		section("totals", errorTotals...)
	case "hang":
		section("facts", hangFacts...)
		section("processes", hangProcessColumns...)
		section("threads", hangThreadColumns...)
		section("launches", lastLaunchColumns...)
		section("long_calls", longCallColumns...)
		section("polling", pollColumns...)
		section("identities", processColumns...)
		section("totals", hangTotals...)
	case "diff":
		section("facts", diffFacts...)
		section("setup", setupColumns...)
		section("names", diffNames...)
		section("totals", diffTotals...)
	case "memory":
		section("facts", memoryFacts...)
		section("levels", levelColumns...)
		section("holders", holderColumns...)
		section("pools", poolColumns...)
		section("reconcile", reconcileColumns...)
		section("devices", deviceMemoryColumns...)
		section("totals", memoryTotals...)
	case "allocator":
		section("facts", booksFacts...)
		section("moments", momentColumns...)
		section("allocators", booksColumns...)
		section("peaks", peakColumns...)
		section("events", eventColumns...)
		section("pools", poolUseColumns...)
		section("totals", booksTotals...)
	case "torch-snapshot":
		section("snapshot", snapshotColumns...)
	case "oom":
		section("facts", oomFacts...)
		section("failures", oomColumns...)
		section("cached", cachedColumns...)
		section("holders", oomHolderColumns...)
		section("totals", oomTotals...)
	case "frag":
		section("facts", slices.Concat(lacksFact, fragFacts)...)
		section("spaces", spaceColumns...)
		section("pins", pinColumns...)
		section("trends", fragTrendColumns...)
		section("moments", fragMomentColumns...)
		section("maps", mapColumns...)
		section("totals", fragTotals...)
	case "report": // its other tables are those of the reports that they are named after
		section("peak", peakHolderColumns...)
	case "pprof", "folded":
		section("samples", profileColumns()...)
	case "perfetto":
		section("tracks", perfettoColumns...)
	default:
		return false, nil
	}
	section("quality", append(slices.Clone(qualityColumns), samplingColumns...)...)
	section("where launches were sampled", estimatedLaunches, estimatedCalls)
	return true, w.Flush()
}
