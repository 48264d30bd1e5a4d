//go:build linux

package main

import (
	"slices"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
)

// TestProcessorsFollowNeed decides on processors for shares in use.
func TestProcessorsFollowNeed(t *testing.T) {
	testclass.Unit(t)
	for name, c := range map[string]struct {
		isFixed bool
		shares  []float64
		want    []int
	}{
		"calm":  {shares: []float64{0.5, 0.1, 0.1, 0.1, 0.14, 0.2, 0.1}, want: []int{2, 2, 2, 1, 1, 2, 2}},
		"waves": {shares: []float64{0.1, 0.1, 0.13, 0.1, 0.1, 0.1}, want: []int{2, 2, 2, 2, 2, 1}},
		"fixed": {isFixed: true, shares: []float64{0, 0, 0, 0}, want: []int{2, 2, 2, 2}},
	} {
		p := processorPolicy{most: 2, now: 2, mayLower: !c.isFixed}
		var got []int
		for _, share := range c.shares {
			before := p.now
			n, isNew := p.decide(share)
			if isNew != (n != before) {
				t.Errorf("%s: %d after %d is new: %v", name, n, before, isNew)
			}
			got = append(got, n)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
