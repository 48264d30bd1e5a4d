package threadstate

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/gpurec/gpurec/internal/testclass"
)

// TestSnapshotsFollowSilence reads the calls of two processes each second: process 1 used CUDA before, and
// process 2 is new.
func TestSnapshotsFollowSilence(t *testing.T) {
	testclass.Unit(t)
	for name, c := range map[string]struct {
		hits func(second int) map[int]uint64
		want string // seconds of snapshots, by process
	}{
		"hangs from the start": {
			func(int) map[int]uint64 { return map[int]uint64{1: 0} }, "map[1:[2 60]]",
		},
		"never used CUDA": {
			func(int) map[int]uint64 { return map[int]uint64{2: 0} }, "map[]",
		},
		"works": {
			func(second int) map[int]uint64 { return map[int]uint64{1: uint64(second), 2: uint64(second)} }, "map[]",
		},
		"stops after 20 s": {
			func(second int) map[int]uint64 { return map[int]uint64{2: uint64(min(second, 20))} }, "map[2:[30 80]]",
		},
		"stops twice": {
			func(second int) map[int]uint64 { return map[int]uint64{1: 1 + uint64(second/15)} },
			"map[1:[10 25 40 55 70 85 100 115]]",
		},
		"ends": {
			func(second int) map[int]uint64 {
				if second > 5 {
					return nil
				}
				return map[int]uint64{2: uint64(second)}
			}, "map[]",
		},
		"hits wrap around": {
			func(second int) map[int]uint64 { return map[int]uint64{1: uint64(1<<32-5+second) % (1 << 32)} }, "map[]",
		},
	} {
		begin := time.Unix(1_000_000, 0)
		s := newSilence()
		s.expectCalls([]int{1}, begin)
		snapshots := make(map[int][]int)
		for second := range 121 {
			for _, pid := range s.update(c.hits(second), begin.Add(time.Duration(second)*time.Second)) {
				snapshots[pid] = append(snapshots[pid], second)
			}
		}
		if got := fmt.Sprint(snapshots); got != c.want {
			t.Errorf("%s: %s, not %s", name, got, c.want)
		}
		if name == "ends" && len(s.processes) != 0 {
			t.Errorf("%d processes are kept", len(s.processes))
		}
	}
}

func TestDuePidsAreDistinct(t *testing.T) {
	testclass.Unit(t)
	s := newSilence()
	now := time.Unix(1_000_000, 0)
	s.expectCalls([]int{1, 2, 3}, now)
	due := s.update(map[int]uint64{1: 0, 2: 0, 3: 7}, now.Add(time.Hour))
	slices.Sort(due)
	if !slices.Equal(due, []int{1, 2}) {
		t.Errorf("snapshots at %v", due)
	}
}
