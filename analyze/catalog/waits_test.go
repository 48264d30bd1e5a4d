package catalog

import (
	"testing"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

func TestDescribeWait(t *testing.T) {
	testclass.Unit(t)
	for want, c := range map[string]struct {
		fact format.WaitFact
		at   string
	}{
		"": {format.WaitFact{Reason: "of the future", Target: "x"}, "f"},
		`waits for the GIL, held by thread 4711 "loader" at load (data.py:12)`: {
			format.WaitFact{Reason: format.ReasonGIL, OwnerTid: 4711, Owner: "loader"}, "load (data.py:12)",
		},
		"waits for a lock":                         {format.WaitFact{Reason: format.ReasonLock}, "f"},
		"waits for a pipe":                         {format.WaitFact{Reason: format.ReasonPipe, Target: "pipe"}, ""},
		"waits for a pipe: /tmp/fifo":              {format.WaitFact{Reason: format.ReasonPipe, Target: "/tmp/fifo"}, ""},
		"waits for the network: 10.0.0.1:443":      {format.WaitFact{Reason: format.ReasonNetwork, Target: "10.0.0.1:443"}, ""},
		"waits for the GPU in cuStreamSynchronize": {format.WaitFact{Reason: format.ReasonCUDA, CUDACall: "cuStreamSynchronize"}, ""},
		`waits for the end of process 7 "cat"`:     {format.WaitFact{Reason: format.ReasonChild, OwnerPid: 7, Owner: "cat"}, ""},
		"waits for the end of a child process":     {format.WaitFact{Reason: format.ReasonChild}, ""},
		`is stopped by process 8 "gdb"`:            {format.WaitFact{Reason: format.ReasonStopped, OwnerPid: 8, Owner: "gdb"}, ""},
		`waits for the import of a module in thread 9 "a" at f`: {
			format.WaitFact{Reason: format.ReasonImportLock, OwnerTid: 9, Owner: "a"}, "f",
		},
	} {
		if got := DescribeWait(&c.fact, c.at); got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
}
