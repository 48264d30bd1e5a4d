//go:build linux

package hold

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// raisedNice is the nice value of gpurec while threads wait in the kernel. Meanwhile, gpurec competes with all
// other programs for the processors.
const raisedNice = -10

// priority is the scheduling priority of gpurec's threads. Only the tracer uses it.
type priority struct {
	normal   int // the nice value to return to
	isRaised bool
}

// newPriority allows this process to raise its priority, also after it has dropped its capabilities.
// If that fails, because root lacks CAP_SYS_RESOURCE, raise has an effect only until they are dropped.
func newPriority() priority {
	const ofRlimit = 20 // getpriority(2) and RLIMIT_NICE count from 20 down
	limit := unix.Rlimit{Cur: ofRlimit - raisedNice, Max: ofRlimit - raisedNice}
	_ = unix.Setrlimit(unix.RLIMIT_NICE, &limit)
	raw, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err != nil {
		raw = ofRlimit
	}
	return priority{normal: ofRlimit - raw}
}

// raise raises the priority of all threads, or restores it.
func (p *priority) raise(on bool) {
	if p.isRaised == on || p.normal <= raisedNice {
		return
	}
	p.isRaised = on
	nice := p.normal
	if on {
		nice = raisedNice
	}
	tasks, _ := os.ReadDir("/proc/self/task") // on an error, the priority stays
	for _, task := range tasks {
		if tid, err := strconv.Atoi(task.Name()); err == nil {
			_ = unix.Setpriority(unix.PRIO_PROCESS, tid, nice) // the thread may have ended
		}
	}
}
