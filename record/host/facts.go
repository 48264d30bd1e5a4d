//go:build linux

package host

import (
	"os"
	"runtime"
	"strings"

	"github.com/gpurec/gpurec/format"
)

// DescribeMachine sets the fields of the metadata that describe the machine. Unreadable fields stay
// empty.
func DescribeMachine(meta *format.Meta) {
	meta.Arch = runtime.GOARCH
	meta.OSRelease = KernelRelease()
	meta.Machine, meta.Clocks = readMachineFacts(), []format.ClockSnapshot{ReadClocks()}
	if host, err := os.Hostname(); err == nil {
		meta.Host = host
	}
	if id, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		meta.BootID = strings.TrimSpace(string(id))
	}
}
