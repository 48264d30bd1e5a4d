//go:build linux

package hostcontext

import (
	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/format"
)

// olderCalls are system calls that newer architectures do not have.
var olderCalls = map[int32]systemCall{
	unix.SYS_POLL:       {"poll", format.ReasonPoll},
	unix.SYS_SELECT:     {"select", format.ReasonPoll},
	unix.SYS_EPOLL_WAIT: {"epoll_wait", format.ReasonPoll},
	unix.SYS_PAUSE:      {"pause", ""},
	unix.SYS_OPEN:       {"open", format.ReasonFile},
	unix.SYS_STAT:       {"stat", format.ReasonFile},
	unix.SYS_LSTAT:      {"lstat", format.ReasonFile},
	unix.SYS_UNLINK:     {"unlink", format.ReasonFile},
	unix.SYS_VFORK:      {"vfork", format.ReasonChild},
}
