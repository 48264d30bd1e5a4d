//go:build linux

package ps

import (
	"fmt"
	"slices"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
)

// TestFollowedProcesses checks the rows of processes that begin, end, do not answer and are replaced.
func TestFollowedProcesses(t *testing.T) {
	testclass.Unit(t)
	f := follower{keep: func(p *Process) bool { return p.Pid < 100 }}
	at := func(pid int, startedNs int64) Process {
		return Process{Pid: pid, StartedUnixNs: startedNs, Command: fmt.Sprint("p", pid)}
	}
	for i, c := range []struct {
		list Listing
		want string
	}{
		{Listing{Processes: []Process{at(1, 5), at(2, 5), at(100, 5)}}, `[1 p1 {"identity":{}} 2 p2 {"identity":{}}]`},
		{Listing{Processes: []Process{at(1, 5)}, Unanswered: []int{2, 3}}, "[]"},
		{Listing{Processes: []Process{at(1, 5)}}, `[2 p2 {"identity":{},"exit_ns":2}]`},
		{
			Listing{Processes: []Process{at(1, 9)}},
			`[1 p1 {"identity":{},"exit_ns":3} 1 p1 {"identity":{}}]`,
		},
	} {
		var got []string
		for _, row := range f.changes(c.list, int64(i)) {
			got = append(got, fmt.Sprintf("%d %s %s", row.Pid, row.Name, row.Message))
		}
		slices.SortStableFunc(got, func(a, b string) int { return int(a[0]) - int(b[0]) })
		if fmt.Sprint(got) != c.want {
			t.Errorf("%v, want %s", got, c.want)
		}
	}
}
