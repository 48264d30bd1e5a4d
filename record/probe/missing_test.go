//go:build linux

package probe

import (
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
)

func TestMissingTimes(t *testing.T) {
	testclass.Unit(t)
	var m MissingLaunchTimes
	m.Begin(100)
	m.End(200)
	m.Begin(300)
	for _, c := range []struct {
		from, to int64
		want     bool
	}{
		{0, 100, false},
		{0, 101, true},
		{150, 160, true},
		{200, 300, false},
		{199, 300, true},
		{50, 250, true},
		{250, 301, true},
		{400, 500, true},
	} {
		if got := m.Overlaps(c.from, c.to); got != c.want {
			t.Errorf("%d to %d: %v", c.from, c.to, got)
		}
	}
}
