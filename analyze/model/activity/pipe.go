package activity

import "github.com/gpurec/gpurec/analyze/model/timeline"

// passedOperation is an operation, or a span of time in which untimed operations may have run.
type passedOperation struct {
	Operation
	isSpan      bool
	pid, device int32
	span        Interval
}

// eachOperationAlongside is eachOperation with its reading in another goroutine: what a report does with the operations
// takes about as long.
func (a *attempt) eachOperationAlongside(
	means map[durationKey]*Duration, yield func(*Operation), untimed func(pid, device int32, span Interval),
) error {
	operations := timeline.NewPipe[passedOperation]()
	sendOperation := func(w *Operation) {
		to := operations.Next()
		to.Operation, to.isSpan = *w, false
	}
	sendSpan := func(pid, device int32, span Interval) {
		to := operations.Next()
		to.isSpan, to.pid, to.device, to.span = true, pid, device, span
	}
	result := make(chan error, 1)
	go func() {
		result <- a.eachOperation(means, sendOperation, sendSpan)
		operations.End()
	}()
	operations.Receive(func(w *passedOperation) {
		switch {
		case !w.isSpan:
			yield(&w.Operation)
		case untimed != nil:
			untimed(w.pid, w.device, w.span)
		}
	})
	return <-result
}
