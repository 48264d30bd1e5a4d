package hang

import (
	"fmt"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/activity"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/symbolize"
)

// gpuOperations has the operations that the GPU had begun and not finished at the reported time, by process.
type gpuOperations struct {
	activity   *activity.Activity
	unfinished map[int32][]activity.UnfinishedOperation // the longest running operation first
	paired     map[int32]bool                           // processes with a stream whose channel is known
}

// addGPUOperations reads the unfinished operations of processes without progress, and adds the operations that the GPU
// is stuck in to their evidence.
func (s *Scan) addGPUOperations(verdicts []ProcessVerdict) error {
	s.operations = gpuOperations{
		unfinished: make(map[int32][]activity.UnfinishedOperation),
		paired:     make(map[int32]bool),
	}
	if len(s.T.Facts.Channels) == 0 || len(verdicts) == 0 || verdicts[0].State >= StateAlive {
		return nil
	}
	a, err := activity.Of(s.T, s.T.RecordingWindow())
	if err != nil {
		return err
	}
	s.operations.activity = a
	for i := range a.Streams {
		if a.Streams[i].Channel != 0 {
			s.operations.paired[a.Streams[i].Pid] = true
		}
	}
	list, err := a.Unfinished(s.EndNs)
	for i := range list {
		pid := list[i].Call.Pid
		s.operations.unfinished[pid] = append(s.operations.unfinished[pid], list[i])
	}
	for i := range verdicts {
		if verdicts[i].State < StateAlive {
			s.setGPUOperation(&verdicts[i])
		}
	}
	return err
}

// setGPUOperation adds the operation that the GPU is stuck in to the evidence of a process without progress.
func (s *Scan) setGPUOperation(p *ProcessVerdict) {
	pid := p.History.Pid
	list := s.operations.unfinished[pid]
	switch {
	case !s.operations.paired[pid]:
	case len(list) == 0:
		p.gpu.operations = "the GPU has finished all operations of the process whose channels are known"
	default:
		p.gpu.operations = s.stuckSentence(p, &list[0])
	}
}

// stuckSentence describes the longest running operation of a process.
func (s *Scan) stuckSentence(p *ProcessVerdict, w *activity.UnfinishedOperation) string {
	name, _ := s.operationName(w)
	been := "has been"
	if w.StartQuality < activity.Bounded {
		been = "has probably been" // no wait confirms the number of the operation
	}
	text := fmt.Sprintf("the GPU %s in %s for %s", been, name, units.FormatDuration(s.EndNs-w.StartNs()))
	if w.Behind == 0 && p.waitingIn == nil {
		text = fmt.Sprintf(
			"the last operation of the GPU, %s, began %s before; nothing waits for it, so it may have ended",
			name,
			units.FormatDuration(s.EndNs-w.StartNs()),
		)
	}
	if site := s.siteOfOperation(w); site != "" {
		text += ", launched by " + site
	}
	if w.Behind > 0 {
		text += "; " + units.CountWithNoun(w.Behind, "more operation") + " of the stream had not begun"
	}
	if strings.Contains(strings.ToLower(name), "nccl") {
		text += "; it is a collective, which spins until all peers take part"
	}
	return text
}

// operationName returns the kernel or the kind of an operation, and its grid ("" without one).
func (s *Scan) operationName(w *activity.UnfinishedOperation) (name, grid string) {
	switch w.Call.Op {
	case activity.OpFill:
		return "a memset", ""
	case activity.OpCopyOnDevice, activity.OpCopyToDevice, activity.OpCopyToHost:
		return "a copy", ""
	case activity.OpRecordEvent:
		return "a record of an event", ""
	}
	if w.Call.Label < 0 {
		return "a kernel", ""
	}
	l := &s.operations.activity.Labels[w.Call.Label]
	if w.Call.Op == activity.OpGraph {
		return fmt.Sprintf("graph 0x%x", uint64(l.Graph)), ""
	}
	if l.Grid[0] > 0 {
		grid = fmt.Sprintf("%d,%d,%d", l.Grid[0], l.Grid[1], l.Grid[2])
	}
	if l.Kernel == "" {
		return "a kernel without a name", grid
	}
	return symbolize.ShortKernel(l.Kernel), grid
}

// siteOfOperation returns the call site of an operation, or "".
func (s *Scan) siteOfOperation(w *activity.UnfinishedOperation) string {
	if w.Call.Stack == 0 {
		return ""
	}
	return s.T.SiteOfStack(w.Call.Stack)
}

// operationColumns are the columns of Scan.operationTable.
var operationColumns = []report.Column{
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process id"},
	{Key: "stream", Title: "STREAM", Unit: report.UnitText, About: "CUDA stream of the operation"},
	{
		Key: "running_ns", Title: "BEGAN", Unit: report.UnitNs,
		About: "time from the start of the operation on the GPU to the reported time",
	},
	{
		Key: "running_error_ns", Title: "±", Unit: report.UnitNs,
		About: "half the distance between the bounds of BEGAN",
	},
	{
		Key:   "quality",
		Title: "KNOWN",
		Unit:  report.UnitText,
		About: "certainty of operation and BEGAN: measured, bounded, or estimated if no later wait confirms the " +
			"number of the operation",
	},
	{
		Key:    "operation",
		OldKey: "work",
		Title:  "OPERATION",
		Unit:   report.UnitText,
		About:  "kernel, graph or kind of the operation",
	},
	{Key: "grid", Title: "GRID", Unit: report.UnitText, About: "grid of the kernel"},
	{
		Key: "number", Title: "NUMBER", Unit: report.UnitID,
		About: "counter of the channel when the operation began",
	},
	{Key: "channel", Title: "CHANNEL", Unit: report.UnitID, About: "number of the channel in the recording"},
	{
		Key: "behind", Title: "BEHIND", Unit: report.UnitCount,
		About: "later operations of the stream that had not begun",
	},
	{
		Key: "site", Title: "SITE", Unit: report.UnitText,
		About: "call site: the frame of the program's own code that launched the operation",
	},
}

// operationTable returns a table with the unfinished operations of processes without progress.
func (s *Scan) operationTable(verdicts []ProcessVerdict) report.Table {
	table := report.Table{
		Name:      "gpu_operations",
		OldName:   "gpu_works",
		Title:     "operations that the GPU is not known to have finished",
		Columns:   operationColumns,
		Keys:      []string{},
		HideFirst: []string{"channel", "running_error_ns"},
	}
	for i := range verdicts {
		if verdicts[i].State >= StateAlive {
			continue
		}
		for k := range s.operations.unfinished[verdicts[i].History.Pid] {
			s.addOperationRow(&table, &s.operations.unfinished[verdicts[i].History.Pid][k])
		}
	}
	return table
}

// qualityNames are the values of the column "quality".
var qualityNames = map[activity.Quality]string{
	activity.Measured: "measured", activity.Bounded: "bounded", activity.Estimated: "estimated",
}

func (s *Scan) addOperationRow(table *report.Table, w *activity.UnfinishedOperation) {
	name, grid := s.operationName(w)
	row := table.Add(report.Values{
		"pid":              int64(w.Call.Pid),
		"stream":           query.StreamName(activity.RecordedHandle(w.Call.Stream)),
		"running_ns":       s.EndNs - w.StartNs(),
		"running_error_ns": w.Start.WidthNs() / 2,
		"quality":          qualityNames[w.StartQuality],
		"operation":        name,
		"grid":             units.TextOrNil(grid),
		"number":           w.LikelyNumber,
		"channel":          int64(w.Channel),
		"behind":           w.Behind,
		"site":             units.TextOrNil(s.siteOfOperation(w)),
	})
	row.StackID = w.Call.Stack
}
