package gputime_test

import (
	"testing"

	"github.com/gpurec/gpurec/analyze/model/activity"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report/gputime"
	"github.com/gpurec/gpurec/internal/testclass"
)

// TestSentenceNamesReasons has operations with a mean, without one, and without one because streams shared the GPU.
func TestSentenceNamesReasons(t *testing.T) {
	testclass.Unit(t)
	for _, c := range []struct {
		known, unknown, shared float64
		want                   string
		hasShares              bool
	}{
		{0, 0, 7, "unknown for all launches because kernels of several streams shared the GPU", false},
		{0, 3, 1, "unknown for all launches, for 25.0% of them because kernels of several streams shared the GPU", false},
		{0, 3, 0, "unknown for all launches", false},
		{9, 0, 0, "9.0us ± 1.8us of kernels in 1.00s, estimated", true},
		{9, 0, 1, "9.0us ± 1.8us of kernels in 1.00s, estimated; the GPU time of 10.0% of the launches is unknown " +
			"because kernels of several streams shared the GPU", true},
		{6, 3, 1, "6.0us ± 1.2us of kernels in 1.00s, estimated; the GPU time of 40.0% of the launches is unknown, " +
			"of 10.0% because kernels of several streams shared the GPU", false},
	} {
		var sum activity.TimeSum
		sum.Add(activity.Estimate{MeanNs: 1000, ErrorNs: 100, Quality: activity.Estimated}, c.known)
		sum.Add(activity.Estimate{}, c.unknown)
		sum.Add(activity.Estimate{IsShared: true}, c.shared)
		if got := gputime.Sentence(&sum, query.Window{ToNs: 1e9}, "kernels", "launches"); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
		if hasShares := sum.AllNs() > 0; hasShares != c.hasShares {
			t.Errorf("%+v: shares %t", c, hasShares)
		}
	}
}
