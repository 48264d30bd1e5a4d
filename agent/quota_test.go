package agent

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// capture returns a sealed capture of a kind, some hours after the start.
func capture(hour int, kind string, bytes int64) format.Capture {
	at := time.Date(2026, 1, 1, hour, 0, 0, 0, time.UTC)
	return format.Capture{
		ID: at.Format(captureTimeLayout) + "-" + kind + "-x1", State: format.CaptureSuffix, Bytes: bytes,
	}
}

func TestChooseExpired(t *testing.T) {
	testclass.Unit(t)
	now := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	pending := format.Capture{ID: "20260101T000000Z-oom-x2", State: format.PendingSuffix, Bytes: 30}
	other := format.Capture{ID: "notes", State: format.CaptureSuffix, Bytes: 1}
	for name, c := range map[string]struct {
		all    []format.Capture
		space  space
		want   string // hours and kinds
		enough bool
	}{
		"room": {
			[]format.Capture{capture(1, "oom", 10), capture(2, "oom", 10)}, space{limits: Captures{Bytes: 20}}, "", true,
		},
		"the oldest first": {
			[]format.Capture{capture(3, "oom", 10), capture(1, "oom", 10), capture(2, "oom", 10)},
			space{limits: Captures{Bytes: 20}},
			"01 oom", true,
		},
		"never the newest of a kind": {
			[]format.Capture{capture(1, "xid", 10), capture(2, "oom", 10), capture(3, "oom", 10)},
			space{limits: Captures{Bytes: 20}},
			"02 oom", true,
		},
		"only newest ones": {
			[]format.Capture{capture(1, "xid", 10), capture(2, "oom", 10)}, space{limits: Captures{Bytes: 10}}, "", false,
		},
		"both parts of the newest": {
			[]format.Capture{capture(1, "oom", 10), capture(1, "oom", 10)}, space{limits: Captures{Bytes: 10}}, "", false,
		},
		"unsealed ones count, but stay": {
			[]format.Capture{pending, capture(1, "oom", 10), capture(2, "oom", 10)},
			space{limits: Captures{Bytes: 45}},
			"01 oom", true,
		},
		"other files stay": {
			[]format.Capture{other, capture(1, "oom", 10)}, space{limits: Captures{Bytes: 5}}, "", false,
		},
		"a full disk": {
			[]format.Capture{capture(1, "oom", 10), capture(2, "oom", 10), capture(3, "oom", 10)},
			space{Captures{Bytes: 1000, FreePct: 10}, 85, 1000},
			"01 oom,02 oom", true,
		},
		"too old": {
			[]format.Capture{capture(1, "oom", 10), capture(20, "oom", 10)},
			space{limits: Captures{Bytes: 1000, Keep: 10 * time.Hour}},
			"01 oom", true,
		},
		"the newest is too old": {
			[]format.Capture{capture(1, "oom", 10)}, space{limits: Captures{Bytes: 1000, Keep: time.Hour}}, "01 oom", true,
		},
	} {
		expired, enough := chooseExpired(c.all, c.space, now)
		var got []string
		for _, e := range expired {
			at, kind := parseID(e.ID)
			got = append(got, fmt.Sprintf("%02d %s", at.Hour(), kind))
		}
		if strings.Join(got, ",") != c.want || enough != c.enough {
			t.Errorf("%s: %q, enough: %v", name, got, enough)
		}
	}
}

// TestChooseExpiredInRandomFolders checks the rules for random captures: the limits hold if enough is true, the newest
// of each kind stays, and no kept capture that may go is older than one that goes.
func TestChooseExpiredInRandomFolders(t *testing.T) {
	testclass.Unit(t)
	random := rand.New(rand.NewPCG(1, 2))
	now := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	for i := range 2000 {
		var all []format.Capture
		for range random.IntN(12) {
			all = append(
				all,
				capture(random.IntN(24), []string{"oom", "xid", "hang"}[random.IntN(3)], random.Int64N(50)),
			)
		}
		limit := random.Int64N(300)
		expired, enough := chooseExpired(all, space{limits: Captures{Bytes: limit}}, now)
		left := slices.Clone(all)
		newest, used := make(map[string]string), int64(0)
		for _, c := range all {
			_, kind := parseID(c.ID)
			newest[kind] = max(newest[kind], c.ID)
		}
		for _, e := range expired {
			if _, kind := parseID(e.ID); newest[kind] == e.ID {
				t.Fatalf("%d: the newest %s goes", i, kind)
			}
			left = slices.Delete(left, slices.Index(left, e), slices.Index(left, e)+1)
		}
		for _, c := range left {
			used += c.Bytes
			_, kind := parseID(c.ID)
			for _, e := range expired {
				if newest[kind] != c.ID && c.ID[:9] < e.ID[:9] {
					t.Fatalf("%d: %s stays, but %s goes", i, c.ID, e.ID)
				}
			}
		}
		if enough != (used <= limit) {
			t.Fatalf("%d: enough is %v with %d of %d bytes", i, enough, used, limit)
		}
	}
}
