//go:build linux

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/gpurec/gpurec/analyze/live"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/verdict"
	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/gpurec/gpurec/record"
)

// liveVerdicts names leaks, hangs, failed allocations and errors while a recording is written.
type liveVerdicts struct {
	folder *os.Root // that of the recording
	path   string   // of folder
	log    *verdict.Log
	show   func([]live.Verdict) // gets all verdicts that hold now, after each look; nil: nothing does
	print  func(live.Verdict)   // gets each new verdict
	failed bool                 // a review has failed, which was said
}

// openVerdicts makes the recording have verdicts, unless --no-verdicts is set.
func (f *recordFlags) openVerdicts() {
	if f.noVerdicts || f.opt.EmptyProbes {
		return
	}
	path := cmp.Or(f.opt.Folder, ".")
	if f.opt.Output != "" {
		path = filepath.Dir(f.opt.Output)
	}
	folder, err := os.OpenRoot(path)
	if err != nil {
		return // record.Start explains what is wrong with the folder
	}
	f.verdicts = &liveVerdicts{folder: folder, path: path, log: verdict.NewLog(), print: printVerdict}
	if f.live != nil {
		f.verdicts.show, f.verdicts.print = f.live.monitor.SetVerdicts, f.live.printVerdict
	}
	f.opt.Reviews = &record.Reviews{Folder: folder, Judge: f.verdicts.judge}
}

// close releases the folder.
func (v *liveVerdicts) close() {
	if v != nil {
		_ = v.folder.Close() // nothing is written to it any more
	}
}

// judge is record.Reviews.Judge.
func (v *liveVerdicts) judge(ctx context.Context, r record.Review) (took time.Duration, again bool) {
	out, took, err := runReview(ctx, filepath.Join(v.path, r.Name))
	if err != nil {
		v.noteFailure(ctx, err)
		return max(took, failedReviewCost), false
	}
	v.add(verdict.Look{
		AtNs: r.AtNs, Length: time.Duration(out.LengthNs), IsWhole: r.ShowsMemory(), List: out.Findings,
	})
	return took, v.log.IsWaiting()
}

// failedReviewCost is the processor time that a failed review counts: the next one begins later.
const failedReviewCost = time.Second

// noteFailure prints a warning, once.
func (v *liveVerdicts) noteFailure(ctx context.Context, err error) {
	if v.failed || ctx.Err() != nil {
		return
	}
	v.failed = true
	message.Warningf("verdicts may be missing while the recording runs: %v", err)
}

// add adds a look at the recording.
func (v *liveVerdicts) add(look verdict.Look) {
	fresh := v.log.Add(look)
	if v.show != nil {
		v.show(v.log.Current())
	}
	for _, f := range fresh {
		v.print(f)
	}
}

// maxLastReviewCalls bounds the calls of a recording that is reviewed once more at its end.
const maxLastReviewCalls = 2_000_000

// finish looks at the finished recording: a failure may have ended the program.
func (v *liveVerdicts) finish(result *record.Result) {
	if v == nil || result.Unfinished != "" || result.Meta.Totals().Recorded > maxLastReviewCalls {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), maxLastReview)
	defer cancel()
	out, _, err := runReview(ctx, result.Output)
	if err != nil {
		return // the reports on the file say what is wrong
	}
	v.add(verdict.Look{
		AtNs: result.Meta.EndNs, Length: time.Duration(out.LengthNs), IsWhole: true, IsLast: true, List: out.Findings,
	})
}

// maxLastReview is the longest time for which the look at a finished recording delays the end of gpurec.
const maxLastReview = 3 * time.Second

// printVerdict prints a verdict as one line on standard error.
func printVerdict(v live.Verdict) {
	text := "verdict: " + v.Kind
	if v.SoFar {
		text += " so far"
	}
	text += ": " + v.What
	site, process, _ := strings.Cut(v.Where, " in process ")
	switch {
	case v.Where == "" || v.Where == timeline.NoStackSite || strings.Contains(v.What, v.Where):
	case process != "" && strings.Contains(v.What, site): // the site is in the stack of the text
		if !strings.Contains(v.What, process) {
			text += ", in process " + process
		}
	default:
		text += ", at " + v.Where
	}
	message.Notef("%s", text)
}

// maxReviewTime is the longest time of a review: its processor time is bounded, but it may be stopped.
const maxReviewTime = 3 * time.Minute

// runReview runs gpurec review as a child process, which ends with gpurec. It returns the processor time that the child
// took.
func runReview(ctx context.Context, path string) (out reviewOutput, took time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, maxReviewTime)
	defer cancel()
	var messages bytes.Buffer
	cmd := newChild(ctx, &messages, "review", "--", path)
	runtime.LockOSThread() // the signal is sent when the thread that started the child ends
	defer runtime.UnlockOSThread()
	text, err := cmd.Output()
	if cmd.ProcessState != nil {
		took = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	if err != nil {
		return out, took, fmt.Errorf("gpurec review: %w%s", err, firstLine(messages.String()))
	}
	return out, took, json.Unmarshal(text, &out)
}
