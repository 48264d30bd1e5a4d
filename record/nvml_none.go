//go:build linux && !cgo

package record

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gpurec/gpurec/format"
)

// ErrNoNVML says why there are no GPU samples.
var ErrNoNVML = errors.New("no NVML")

// telemetry is empty in a build without cgo, which NVML needs.
type telemetry struct{ driver, cuda string }

func gpuUsers(time.Duration) ([]gpuUser, error) {
	_, err := openTelemetry()
	return nil, err
}

func openTelemetry() (*telemetry, error) {
	return nil, fmt.Errorf("%w: this gpurec was built with CGO_ENABLED=0", ErrNoNVML)
}

func (t *telemetry) names() []gpuName { return nil }

func (t *telemetry) facts(int64) []format.Row { return nil }

func (t *telemetry) run(clock, time.Duration, *rowSender, <-chan struct{}) {}

func (t *telemetry) costs() []format.SamplingCost { return nil }

func (t *telemetry) watchXids(clock, *xidMerger, <-chan struct{}, *sync.WaitGroup) error { return nil }

func (t *telemetry) close() {}
