package activity

import "strings"

// HoldKind names a thing that a stream waits for.
type HoldKind uint8

// Kinds of HoldKind.
const (
	HoldNone     HoldKind = iota
	HoldEvent             // an event
	HoldValue             // a value in memory
	HoldHostFunc          // a function on the host
	HoldOrder             // the operation before on the stream, which ran on another channel; no call
)

// holdKindOf returns what a function makes a stream wait for.
func holdKindOf(function string) HoldKind {
	switch {
	case function == "cuStreamWaitEvent":
		return HoldEvent
	case strings.HasPrefix(function, "cuLaunchHostFunc"), function == "cuStreamAddCallback":
		return HoldHostFunc
	}
	return HoldValue
}

// Hold is a call that makes a stream wait on the GPU, or a change of the channel.
type Hold struct {
	StartNs int64 // of the call, Unix ns; 0: no call
	Stack   int32
	Kind    HoldKind
	// Of HoldEvent and HoldOrder: the stream that recorded the event, as an index of Result.Streams, and the last
	// operation of that stream before the record. Stream is -1 if no record is known.
	Stream int32
	After  LastCall
}

// LastCall is the last call of a stream that added an operation.
type LastCall struct {
	StartNs      int64 // Unix ns; 0: there is none
	Stack, Label int32
	Op           Op
}

// holds has memory for Hold values.
type holds struct{ chunk []Hold }

// noteHold notes the call that makes a stream wait.
func (r *reader) noteHold(b *streamBarrier, c *Call) {
	b.hold = r.holds.add(Hold{StartNs: c.StartNs, Stack: c.Stack, Kind: c.Hold, Stream: -1})
	if c.Hold == HoldEvent {
		if e := r.events[handleKey{c.Pid, c.Event}]; e != nil {
			b.hold.Stream, b.hold.After = e.stream, e.after
		}
	}
}

// holdOf returns what the next operation of a stream waits for, on a channel; nil: only for the operation before.
func (r *reader) holdOf(b *streamBarrier, stream int32, channel *channelState) *Hold {
	hold := b.hold
	b.hold = nil
	if hold == nil && b.last != channel && b.lastOperation.StartNs != 0 {
		return r.holds.add(Hold{Kind: HoldOrder, Stream: stream, After: b.lastOperation})
	}
	return hold
}

// add keeps a Hold.
func (h *holds) add(hold Hold) *Hold {
	const chunk = 1024
	if len(h.chunk) == 0 {
		h.chunk = make([]Hold, chunk)
	}
	kept := &h.chunk[0]
	*kept, h.chunk = hold, h.chunk[1:]
	return kept
}
