package blocks

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/blockreadings"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/units"
)

// factColumns are the facts of the report.
var factColumns = []report.Column{
	{
		Key: "result", Title: "result", Unit: report.UnitText,
		About: "sizes whose blocks grow. If the blocks of a process grow and no size does, it says so. Without " +
			"readings, it has the command that records them",
	},
	{
		Key: "next", Title: "next", Unit: report.UnitText,
		About: "commands that name the lines that allocate what grows; absent if nothing grows",
	},
}

// totalColumns are the totals of the report.
var totalColumns = []report.Column{
	{Key: "readings", Title: "readings", Unit: report.UnitCount, About: "sum of READINGS over all allocators"},
	{Key: "refused", Title: "refused", Unit: report.UnitCount, About: "sum of REFUSED over all allocators"},
	{Key: "unused", Title: "unused", Unit: report.UnitCount, About: "sum of UNUSED over all allocators"},
	{Key: "live_bytes", Title: "live", Unit: report.UnitBytes, About: "sum of LIVE over all sizes"},
	{Key: "live_count", Title: "blocks", Unit: report.UnitCount, About: "sum of COUNT over all sizes"},
	{Key: "growing", Title: "growing", Unit: report.UnitCount, About: "sizes with verdict growing"},
	{Key: "steady", Title: "steady", Unit: report.UnitCount, About: "sizes with verdict steady"},
	{Key: "churn", Title: "churn", Unit: report.UnitCount, About: "sizes with verdict churn"},
	{
		Key: "without_verdict", Title: "without verdict", Unit: report.UnitCount,
		About: "sizes without a verdict, because there are too few readings",
	},
	{
		Key: "growing_allocators", Title: "growing allocators", Unit: report.UnitCount,
		About: "allocators with verdict growing: the blocks of all sizes together grow",
	},
	{Key: "grown_bytes", Title: "grown", Unit: report.UnitBytes, About: "sum of GROWN over growing sizes"},
	{
		Key: "growth_bytes_per_min", Title: "growth/min", Unit: report.UnitBytesRate,
		About: "sum of GROWTH/min over growing sizes",
	},
	{
		Key: "explained_growth_pct", Title: "explained%", Unit: report.UnitPercent,
		About: "share of the growth of growing allocators that their growing sizes explain, at most 100%: the sum of " +
			"the slopes of the sizes / the sum of those of the allocators. Absent if no allocator grows",
	},
}

// totals returns the sums over all findings and allocators.
func (s *scan) totals(findings []finding) []report.Fact {
	var live blockreadings.Level
	var verdicts [verdictNone + 1]int64
	var grown, growingAllocators int64
	var perMin, explained, all float64
	for i := range findings {
		f := &findings[i]
		live.Blocks, live.Bytes = live.Blocks+f.last.Blocks, live.Bytes+f.last.Bytes
		verdicts[f.verdict]++
		if f.verdict != verdictGrowing {
			continue
		}
		grown += f.grownBytes()
		perMin += f.growth.perMin
		if f.of.isGrowing() {
			explained += f.growth.perMin
		}
	}
	for _, a := range s.allocators {
		if a.isGrowing() {
			growingAllocators++
			all += a.growth.perMin
		}
	}
	used, refused, unused := s.count()
	v := report.Values{
		"readings": used, "refused": refused, "unused": unused, "live_bytes": live.Bytes, "live_count": live.Blocks,
		"growing": verdicts[verdictGrowing], "steady": verdicts[verdictSteady], "churn": verdicts[verdictChurn],
		"without_verdict": verdicts[verdictNone], "growing_allocators": growingAllocators, "grown_bytes": grown,
		"growth_bytes_per_min": units.RoundInt(perMin), "explained_growth_pct": nil,
	}
	if growingAllocators > 0 {
		v["explained_growth_pct"] = math.Min(100, 100*explained/all)
	}
	return report.NewFacts(totalColumns, v)
}

// facts returns what grows, and the next command.
func (s *scan) facts(findings []finding) []report.Fact {
	return report.NewFacts(factColumns, report.Values{"result": s.result(findings), "next": s.next()})
}

// commandToRead records readings of blocks.
const commandToRead = "sudo gpurec record -p PID --allocator=off --blocks-every 1s"

// result returns what the readings show, as a sentence.
func (s *scan) result(findings []finding) string {
	used, refused, unused := s.count()
	switch {
	case !blockreadings.Has(s.t):
		return "the recording has no readings of blocks; record them: " + commandToRead
	case len(s.allocators) == 0:
		return "no reading passes the filter"
	case used == 0:
		return fmt.Sprintf("no reading is usable: %s refused, %s unused", units.FormatCount(refused),
			units.FormatCount(unused))
	}
	parts := describeGrowth(findings)
	for _, a := range s.allocators {
		switch {
		case a.Used > 0 && !a.hasVerdicts():
			parts = append(
				parts,
				fmt.Sprintf("no verdict for %s: it needs %d readings after the first tenth of the time, "+
					"and there are %d", a.name(), minReadings, a.afterWarmup),
			)
		case a.isGrowing() && !a.hasGrowingSize:
			parts = append(parts, fmt.Sprintf("the blocks of %s grow by %s/min, but no single size does", a.name(),
				units.FormatBytes(units.RoundInt(a.growth.perMin))))
		}
	}
	if len(parts) == 0 {
		return "no size of blocks grows"
	}
	return strings.Join(parts, "; ")
}

// describeGrowth returns the size that grows fastest, and the number of other growing sizes.
func describeGrowth(findings []finding) (parts []string) {
	var fastest *finding
	growing := int64(0)
	for i := range findings {
		if f := &findings[i]; f.verdict == verdictGrowing {
			growing++
			if fastest == nil || f.growth.perMin > fastest.growth.perMin {
				fastest = f
			}
		}
	}
	if fastest == nil {
		return nil
	}
	text := fmt.Sprintf("blocks of %s grow by %s/min in %s", timeline.FormatExactSize(fastest.Requested),
		units.FormatBytes(units.RoundInt(fastest.growth.perMin)), fastest.of.name())
	if growing > 1 {
		text += ", and so do " + units.CountWithNoun(growing-1, "other size")
	}
	return []string{text}
}

// name returns the process and device of an allocator.
func (s *allocatorStats) name() string {
	if s.Device < 0 {
		return fmt.Sprintf("process %d", s.Pid)
	}
	return fmt.Sprintf("process %d, device %d", s.Pid, s.Device)
}

// next returns the commands that name the lines of what grows, or nil if nothing grows.
func (s *scan) next() any {
	var pids []string
	hasEnded := false
	for _, a := range s.allocators {
		if !a.isGrowing() && !a.hasGrowingSize {
			continue
		}
		pid := fmt.Sprintf("-p %d", a.Pid)
		if a.hasEnded {
			pid, hasEnded = "-p PID", true
		}
		if !slices.Contains(pids, pid) {
			pids = append(pids, pid)
		}
	}
	if len(pids) == 0 {
		return nil
	}
	text := "sudo gpurec record " + strings.Join(pids, " ") + " --allocator=auto -d 60s; then gpurec analyze leaks " +
		"names the lines"
	if hasEnded {
		text += " (PID: the process of the next run, as this one has ended)"
	}
	return text
}

// notes returns sentences about sizes that the report lacks.
func (s *scan) notes() (list []string) {
	for _, a := range s.allocators {
		if a.removed > 0 {
			list = append(list, fmt.Sprintf("%s: %s left out whose blocks came and went", a.name(),
				units.CountWithNoun(a.removed, "size")))
		}
	}
	return list
}
