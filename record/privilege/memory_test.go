//go:build linux

package privilege

import (
	"strings"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
)

func TestRefusedMemoryNamesTheReason(t *testing.T) {
	testclass.Unit(t)
	for want, a := range map[string]memoryAccess{
		"until the next boot: kernel.yama.ptrace_scope is 3":                         {hasPtrace: true, ptraceScope: 3},
		"needs CAP_SYS_PTRACE, also for its own user: kernel.yama.ptrace_scope is 1": {sameUser: true, ptraceScope: 1},
		"reading its memory needs CAP_SYS_PTRACE":                                    {ptraceScope: 1},
		"/proc/4242/ns/user shows both":                                              {pid: 4242, hasPtrace: true, otherNamespace: true},
		"is forbidden although gpurec has CAP_SYS_PTRACE":                            {hasPtrace: true, sameUser: true, ptraceScope: 1},
	} {
		if got := a.explain(); !strings.Contains(got, want) {
			t.Errorf("%+v: %q, want %q", a, got, want)
		}
	}
	if got := (memoryAccess{sameUser: true}).explain(); got != "reading its memory needs CAP_SYS_PTRACE" {
		t.Errorf("own process without Yama: %q", got)
	}
}
