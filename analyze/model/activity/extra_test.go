package activity

import (
	"slices"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
)

// TestUnprovenTimes has two anchors without an operation in between, and one after an operation without a call.
func TestUnprovenTimes(t *testing.T) {
	testclass.Unit(t)
	var e extraSpans
	if got := e.unproven(10, 900); !slices.Equal(got, []Interval{{10, 900}}) {
		t.Errorf("without an anchor: %v", got)
	}
	e.add(unknownExtra, 100, 110)
	e.add(0, 200, 210)
	e.add(1, 300, 310)
	if got, want := e.unproven(10, 900), []Interval{{10, 110}, {210, 300}, {310, 900}}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestFewBurstsNameNoChannel counts operations without a call in the bursts of a stream.
func TestFewBurstsNameNoChannel(t *testing.T) {
	testclass.Unit(t)
	const apartNs = 1_000_000
	for bursts, want := range map[int]bool{minBursts - 1: false, minBursts: true} {
		c := &channelState{Channel: Channel{Pid: 1, Device: -1}, runsStreams: true, counts: ChannelCounts{Slips: 1}}
		r := &reader{streams: newStreamTable(), bursts: make(map[int32][]burst)}
		stream := r.streams.streamOf(&Call{Pid: 1, Stream: 7})
		c.extra.add(unknownExtra, 0, 1)
		for i := range bursts {
			at := int64(i+1) * apartNs
			c.extra.add(2, at, at+1)
			r.bursts[stream] = append(r.bursts[stream], burst{Interval{at - apartNs/2, at}, 2})
		}
		c.extra.add(0, int64(bursts+1)*apartNs, int64(bursts+1)*apartNs)
		if got := r.hasExtraOf(c, stream); got != want {
			t.Errorf("%d bursts: %t, want %t", bursts, got, want)
		}
	}
}
