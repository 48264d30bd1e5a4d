//go:build linux

package record

import (
	"time"

	"github.com/gpurec/gpurec/format"
)

// limitsOf are the limits that the options ask for.
func limitsOf(opt *Options) format.Limits {
	return format.Limits{MaxBytes: opt.MaxBytes, Ring: opt.Ring, KeepNs: int64(opt.RingFor / time.Nanosecond)}
}
