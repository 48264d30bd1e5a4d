package activity

import "github.com/gpurec/gpurec/analyze/model/timeline"

// passedWork is a work, or a span of time in which untimed works may have run.
type passedWork struct {
	Work
	isSpan      bool
	pid, device int32
	span        Interval
}

// eachWorkAlongside is eachWork with its reading in another goroutine: what a report does with the works takes about
// as long.
func (a *attempt) eachWorkAlongside(
	means map[durationKey]*Duration, yield func(*Work), untimed func(pid, device int32, span Interval),
) error {
	works := timeline.NewPipe[passedWork]()
	sendWork := func(w *Work) {
		to := works.Next()
		to.Work, to.isSpan = *w, false
	}
	sendSpan := func(pid, device int32, span Interval) {
		to := works.Next()
		to.isSpan, to.pid, to.device, to.span = true, pid, device, span
	}
	result := make(chan error, 1)
	go func() {
		result <- a.eachWork(means, sendWork, sendSpan)
		works.End()
	}()
	works.Receive(func(w *passedWork) {
		switch {
		case !w.isSpan:
			yield(&w.Work)
		case untimed != nil:
			untimed(w.pid, w.device, w.span)
		}
	})
	return <-result
}
