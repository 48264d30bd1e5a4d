package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/verdict"
	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/gpurec/gpurec/format"
	"github.com/spf13/cobra"
)

// newReviewCommand returns the hidden verb that says what the rules find in a running recording. record and top run it
// as a child process, so that its memory is bounded apart from that of the recorder.
func newReviewCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "review {FOLDER | FILE}",
		Short:  "Print what the rules find in a recording that is being written",
		Hidden: true,
		Long: `review prints one JSON object with the findings about failures, hangs and growing
memory in a recording. It deletes FOLDER, a frozen part of a running recording, as soon as
its files are open. "gpurec record" and "gpurec top" run it.`,
		Example: `  gpurec review .gpurec-review-4242-K3QXJ7WA.sealing`,
		Args:    cobra.ExactArgs(1),
		RunE:    func(_ *cobra.Command, args []string) error { return printReview(filepath.Clean(args[0])) },
	}
}

// Limits of a review: the soft limit of the garbage collector, the memory above which the kernel refuses more, and the
// processor time after which the kernel ends it.
const (
	reviewMemoryLimitBytes = 96 << 20
	reviewMemoryMaxBytes   = 768 << 20
	reviewMaxCPUSeconds    = 30
)

// reviewOutput is the output of gpurec review.
type reviewOutput struct {
	LengthNs int64             `json:"length_ns"` // of the recording
	Findings []verdict.Finding `json:"findings"`
}

// printReview prints the findings about a recording.
func printReview(path string) error {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(reviewMemoryLimitBytes)
	}
	if err := limitChild(reviewMemoryMaxBytes, reviewMaxCPUSeconds); err != nil {
		message.Warningf("the limits of review are not set: %v", err)
	}
	rec, err := openReviewed(path)
	if err != nil {
		return err
	}
	defer rec.Close()
	t, err := timeline.Open(rec)
	if err != nil {
		return err
	}
	list, err := verdict.Find(t)
	if err != nil {
		return fmt.Errorf("check rules: %w", err)
	}
	return json.NewEncoder(os.Stdout).Encode(reviewOutput{t.RecordingWindow().DurNs(), list})
}

// openReviewed opens a finished recording, or a frozen part of a running one. It deletes the frozen part: its files
// stay readable until they are closed.
func openReviewed(path string) (*format.Recording, error) {
	id, isFrozen := strings.CutSuffix(filepath.Base(path), format.SealingSuffix)
	if !isFrozen {
		return format.Open(path)
	}
	rec, err := format.OpenCapture(path)
	if err != nil {
		return nil, err
	}
	folder, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		rec.Close()
		return nil, err
	}
	defer folder.Close()
	if err := format.RemoveCapture(folder, format.Capture{ID: id, State: format.SealingSuffix}); err != nil {
		message.Warningf("delete %s: %v", path, err) // the recorder tries again
	}
	return rec, nil
}
