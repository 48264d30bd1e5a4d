package main

import (
	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/record/privilege"
)

// childNice is the priority of seal and review: recorded programs and the recorder come first.
const childNice = 10

// limitChild bounds memory, processor time and priority of the process, and drops the capabilities that it does not
// need. maxCPUSeconds 0 is no limit.
func limitChild(maxBytes uint64, maxCPUSeconds uint64) error {
	if err := unix.Setpriority(unix.PRIO_PROCESS, 0, childNice); err != nil {
		return err
	}
	if maxCPUSeconds > 0 {
		err := unix.Setrlimit(unix.RLIMIT_CPU, &unix.Rlimit{Cur: maxCPUSeconds, Max: maxCPUSeconds})
		if err != nil {
			return err
		}
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_DATA, &limit); err != nil {
		return err
	}
	limit.Max = min(limit.Max, maxBytes) // the agent has a limit of its own
	limit.Cur = limit.Max
	if err := unix.Setrlimit(unix.RLIMIT_DATA, &limit); err != nil {
		return err
	}
	return privilege.DropCapabilities(
		[]privilege.Capability{unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER}, nil)
}
