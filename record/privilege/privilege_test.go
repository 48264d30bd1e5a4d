//go:build linux

package privilege

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/internal/testclass"
)

func TestRefusedProgramsNameTheirCapabilities(t *testing.T) {
	testclass.Unit(t)
	refused := fmt.Errorf("map create: %w", unix.EPERM)
	for _, c := range []struct {
		have CapabilitySet
		err  error
		want string
	}{
		{0, refused, "loading BPF programs needs CAP_BPF, CAP_PERFMON"},
		{1 << unix.CAP_BPF, refused, "loading BPF programs needs CAP_PERFMON (have CAP_BPF)"},
		{1<<unix.CAP_BPF | 1<<unix.CAP_PERFMON, refused, refused.Error()},
		{1 << unix.CAP_SYS_ADMIN, refused, refused.Error()},
		{0, unix.EINVAL, unix.EINVAL.Error()},
	} {
		if got := c.have.ExplainLoadError(c.err).Error(); got != c.want {
			t.Errorf("with %x: %s", uint64(c.have), got)
		}
	}
}
