package kernelargs

import (
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/format"
)

// LaunchKey identifies a launch in a recording.
type LaunchKey struct {
	Pid, Tid int32
	StartNs  int64 // Unix ns
}

// HasRows reports whether arguments were recorded. They may have no rows, because nothing was launched.
func HasRows(t *timeline.Timeline) bool { return t.Rec.Meta.KernelArgs != nil || len(t.Arguments) > 0 }

// Messages are the arguments of launches as JSON, see format.ParseKernelArgs.
type Messages map[LaunchKey]string

// Read returns the arguments of the launches that pick selects; nil selects all.
func Read(t *timeline.Timeline, pick func(LaunchKey) bool) (Messages, error) {
	found := make(Messages)
	var start []int64
	var pid, tid []int32
	var message format.Strings
	for _, g := range t.Arguments {
		start = g.Int64("start_ns", start)
		pid, tid = g.Int32("pid", pid), g.Int32("tid", tid)
		message = g.StringsInto("message", message)
		if err := g.Err(); err != nil {
			return nil, t.WrapReadError(err)
		}
		for i := range start {
			key := LaunchKey{pid[i], tid[i], start[i]}
			if pick == nil || pick(key) {
				found[key] = message.At(i)
			}
		}
	}
	return found, nil
}
