package main

import (
	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/record/privilege"
)

// sealNice is the priority of seal: recorded programs and the recorder come first.
const sealNice = 10

// limitSealProcess bounds memory and priority of the process, and drops the capabilities that it does not need.
func limitSealProcess() error {
	if err := unix.Setpriority(unix.PRIO_PROCESS, 0, sealNice); err != nil {
		return err
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_DATA, &limit); err != nil {
		return err
	}
	limit.Max = min(limit.Max, sealMemoryMaxBytes) // the agent has a limit of its own
	limit.Cur = limit.Max
	if err := unix.Setrlimit(unix.RLIMIT_DATA, &limit); err != nil {
		return err
	}
	return privilege.DropCapabilities(
		[]privilege.Capability{unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER}, nil)
}
