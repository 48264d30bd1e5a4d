//go:build linux

package record

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/liveset"
	"github.com/gpurec/gpurec/record/review"
	"github.com/gpurec/gpurec/record/trigger"
)

// Reviews analyze a recording while it is written.
type Reviews struct {
	// Folder is in the file system of the recording. It gets a folder of hard links during each review. It must be open
	// until Close.
	Folder *os.Root
	// Judge analyzes the folder r.Name in Folder, which has the format of an unfinished recording, and deletes it. It
	// stops when ctx is done. It returns the processor time that it took, and whether it wants to look again soon.
	Judge func(ctx context.Context, r Review) (took time.Duration, again bool)
}

// Review is a look at a recording that is being written.
type Review struct {
	Name string // of the folder
	AtNs int64  // end of what it shows, Unix ns
	// IsWhole says that it has everything since the begin of the recording, but for what a ring has dropped.
	IsWhole bool
	// IsUrgent says that something failed or stopped. Otherwise the review is about memory.
	IsUrgent bool
}

// ShowsMemory reports whether the review is long enough to judge whether memory grows. An urgent one may see the last
// seconds only.
func (r *Review) ShowsMemory() bool { return r.IsWhole || !r.IsUrgent }

// reviewLoop makes the reviews of a Session.
type reviewLoop struct {
	opt     *Reviews
	session *Session
	signs   *review.Signs
	pace    *review.Pace
	failed  bool // that files cannot be linked was said
}

// newReviewLoop returns nil without Options.Reviews. live must be that of the row writer.
func (s *Session) newReviewLoop(live *liveset.Set) *reviewLoop {
	if s.opt.Reviews == nil {
		return nil
	}
	removeStaleReviews(s.opt.Reviews.Folder, time.Now())
	return &reviewLoop{
		opt: s.opt.Reviews, session: s, signs: review.NewSigns(live), pace: review.NewPace(time.Now()),
	}
}

// reviewTick is the time between two looks at the reasons for a review.
const reviewTick = 200 * time.Millisecond

// run makes reviews until stop is closed.
func (l *reviewLoop) run(stop <-chan struct{}) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	tick := time.NewTicker(reviewTick)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		case <-tick.C:
			if i%3 == 0 {
				l.checkOpenCalls()
			}
			l.pace.Note(l.signs.Take())
			if due, urgent := l.pace.Next(time.Now()); due {
				l.review(ctx, urgent)
			}
		}
	}
}

// checkOpenCalls shows the calls that have not returned to the signs.
func (l *reviewLoop) checkOpenCalls() {
	if calls, err := l.session.readOpenCalls(); err == nil { // the next reading may succeed
		l.signs.CheckOpenCalls(calls, l.session.clock.NowNs())
	}
}

// review freezes the recording, and lets Judge analyze it.
func (l *reviewLoop) review(ctx context.Context, urgent bool) {
	now := time.Now()
	events := l.session.Progress().Calls
	window := l.pace.Window(now, events, urgent)
	at := l.session.clock.NowNs()
	t := format.Trigger{ // recorders in containers of one folder may have the same PID
		ID: fmt.Sprintf(reviewPrefix+"%d-%s", os.Getpid(), rand.Text()[:8]), Kind: string(trigger.Manual), AtNs: at,
		BeforeNs: window.Nanoseconds(), Evidence: "review of a running recording", Outcome: format.TriggerCaptured,
	}
	frozen := make(chan error, 1)
	l.session.takeCapture(l.opt.Folder, &t, func(err error) { frozen <- err })
	if err := <-frozen; err != nil {
		l.noteFailure(err)
		l.pace.Done(time.Now(), urgent, 0, false)
		removeReview(l.opt.Folder, t.ID) // what it has linked
		return
	}
	took, again := l.opt.Judge(ctx, Review{
		Name: t.ID + format.SealingSuffix, AtNs: at, IsUrgent: urgent,
		IsWhole: at-window.Nanoseconds() <= l.session.startNs,
	})
	removeReview(l.opt.Folder, t.ID)
	l.pace.Done(time.Now(), urgent, took, again)
}

// noteFailure warns once if the file system of the recording has no hard links. The recording itself reports other errors.
func (l *reviewLoop) noteFailure(err error) {
	var link *os.LinkError
	if l.failed || !errors.As(err, &link) {
		return
	}
	l.failed = true
	l.session.warn("verdicts come only at the end of the recording: files cannot be linked in its folder; " +
		"write to another file system with -o: " + err.Error())
}
