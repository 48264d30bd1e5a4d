//go:build linux

package rows

import (
	"fmt"
	"testing"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

func TestCounters(t *testing.T) {
	testclass.Unit(t)
	c := NewCounters()
	var rows []format.Row
	rows = c.Start(rows, 1, Sample{Pid: 7, Name: "faults"})
	for i, value := range []float64{3, 3, 3, 5, 6, 6} {
		rows = c.Append(rows, int64(10*(i+1)), Sample{Pid: 7, Name: "faults", Value: value})
		rows = c.Start(rows, 99, Sample{Pid: 7, Name: "faults"})
	}
	rows = c.Append(rows, 60, Sample{Pid: 8, Name: "faults", Value: 1})
	rows = c.End(rows, 7)
	rows = c.End(rows, 7)
	got := ""
	for _, r := range rows {
		if r.Kind != format.KindHost || r.Name != "faults" || r.Device != -1 {
			t.Errorf("%+v", r)
		}
		got += fmt.Sprintf("%d@%d=%v ", r.Pid, r.StartNs, r.Value)
	}
	if want := "7@1=0 7@10=3 7@30=3 7@40=5 7@50=6 8@60=1 7@60=6 "; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}
