//go:build linux && !cgo

package nvml

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/clock"
	"github.com/gpurec/gpurec/record/host"
	"github.com/gpurec/gpurec/record/rows"
	"github.com/gpurec/gpurec/record/xid"
)

// ErrNoNVML is the reason why there are no GPU samples.
var ErrNoNVML = errors.New("no NVML")

// Sampler is empty in a build without cgo, which NVML needs.
type Sampler struct{ DriverVersion, CUDAVersion string }

// ListGPUUsers returns an error that matches ErrNoNVML.
func ListGPUUsers(time.Duration) ([]GPUUser, error) {
	_, err := Open()
	return nil, err
}

// Open returns an error that matches ErrNoNVML.
func Open() (*Sampler, error) {
	return nil, fmt.Errorf("%w: this gpurec was built with CGO_ENABLED=0", ErrNoNVML)
}

// GPUs returns nil: without cgo, no GPUs are known.
func (s *Sampler) GPUs() []host.GPU { return nil }

// DeviceRows returns nil: without cgo, no GPUs are known.
func (s *Sampler) DeviceRows(int64) []format.Row { return nil }

// Run does nothing without cgo.
func (s *Sampler) Run(clock.Clock, time.Duration, *rows.Sender, <-chan struct{}) {}

// SamplingCosts returns nil: without cgo, nothing is sampled.
func (s *Sampler) SamplingCosts() []format.SamplingCost { return nil }

// WatchXids does nothing without cgo.
func (s *Sampler) WatchXids(clock.Clock, *xid.ReportMerger, <-chan struct{}, *sync.WaitGroup) error {
	return nil
}

// Close does nothing without cgo.
func (s *Sampler) Close() {}
