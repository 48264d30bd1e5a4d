//go:build linux && cgo

package nvml

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/clock"
	"github.com/gpurec/gpurec/record/host"
	"github.com/gpurec/gpurec/record/rows"
)

// Sampler samples the GPUs with NVML. Each GPU has its own thread, because a call about a GPU that
// has fallen off the bus can take minutes.
type Sampler struct {
	// devices are the GPUs in the order of NVML. The versions are "" if unknown.
	devices       []*gpu
	DriverVersion string
	CUDAVersion   string
	stuck         bool // a thread is blocked in NVML
}

// gpu is a GPU and its queries. After opening, only its thread uses it.
type gpu struct {
	index     int
	handle    nvml.Device
	uuid      string
	name      string
	pci       string             // domain:bus:device.function
	total     uint64             // memory size in bytes
	isDivided *bool              // whether MIG mode is on; nil: unknown
	parts     []format.MIGDevice // MIG devices
	queries   []*query
	lost      bool // whether the GPU has stopped answering
	cost      format.SamplingCost
	cpuBase   int64 // CPU time of the thread before sampling, in ns
}

// query is a call of NVML that the device supports and that runs once per period.
type query struct {
	name  string
	every time.Duration // period; 0: at every sample
	run   func(c clock.Clock) ([]format.Row, nvml.Return)

	next  time.Time
	noted bool // whether an error was noted
	cost  format.QueryCost
}

// ErrNoNVML is the reason why there are no GPU samples.
var ErrNoNVML = errors.New("no NVML")

// maxThreadWait is how long Run waits for threads in NVML calls at the end of a recording.
const maxThreadWait = 3 * time.Second

// Open loads NVML and opens the devices. An error matches ErrNoNVML. Call Close to shut NVML down.
func Open() (*Sampler, error) {
	if ret := nvml.Init(); ret != nvml.SUCCESS {
		return nil, fmt.Errorf("%w: %s", ErrNoNVML, explainNVMLError(ret))
	}
	t := new(Sampler)
	if driver, ret := nvml.SystemGetDriverVersion(); ret == nvml.SUCCESS {
		t.DriverVersion = driver
	}
	if v, ret := nvml.SystemGetCudaDriverVersion(); ret == nvml.SUCCESS {
		t.CUDAVersion = fmt.Sprintf("%d.%d", v/1000, v%1000/10)
	}
	n, ret := nvml.DeviceGetCount()
	if ret != nvml.SUCCESS {
		t.Close()
		return nil, fmt.Errorf("%w: count devices: %s", ErrNoNVML, explainNVMLError(ret))
	}
	for i := range n {
		if g, err := openGPU(i); err == nil {
			t.devices = append(t.devices, g)
		}
	}
	return t, nil
}

// explainNVMLError describes an NVML error. It does not call nvml.ErrorString if the library is
// missing.
func explainNVMLError(ret nvml.Return) string {
	if ret == nvml.ERROR_LIBRARY_NOT_FOUND {
		return "libnvidia-ml.so.1 was not found"
	}
	return nvml.ErrorString(ret)
}

// hasNVMLFunction reports whether the driver's NVML has a function. go-nvml resolves functions at
// the first call, and calling a missing function would end the process.
func hasNVMLFunction(symbol string) bool { return nvml.Extensions().LookupSymbol(symbol) == nil }

// identifyGPU opens a device and reads its UUID and name.
func identifyGPU(index int) (*gpu, error) {
	handle, ret := nvml.DeviceGetHandleByIndex(index)
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("open device %d: %s", index, explainNVMLError(ret))
	}
	g := &gpu{index: index, handle: handle, cost: format.SamplingCost{Device: index}}
	if uuid, ret := handle.GetUUID(); ret == nvml.SUCCESS {
		g.uuid = uuid
	}
	if name, ret := handle.GetName(); ret == nvml.SUCCESS {
		g.name = name
	}
	return g, nil
}

// openGPU opens a device and finds its supported queries.
func openGPU(index int) (*gpu, error) {
	g, err := identifyGPU(index)
	if err != nil {
		return nil, err
	}
	handle := g.handle
	if m, ret := handle.GetMemoryInfo(); ret == nvml.SUCCESS {
		g.total = m.Total
	}
	if hasNVMLFunction("nvmlDeviceGetPciInfo_v3") {
		if pci, ret := handle.GetPciInfo(); ret == nvml.SUCCESS {
			g.pci = formatPCIAddress(decodeCString(pci.BusId[:]))
		}
	}
	g.readMIGDevices()
	g.queries = append(g.queries, g.makeMetricQueries()...)
	g.queries = append(g.queries, g.makeFieldQueries()...)
	g.queries = append(g.queries, g.makeGPMQueries()...)
	g.queries = append(g.queries, g.makeProcessQueries()...)
	return g, nil
}

// GPUs returns the GPUs in the order of NVML.
func (s *Sampler) GPUs() []host.GPU {
	names := make([]host.GPU, 0, len(s.devices))
	for _, g := range s.devices {
		names = append(names, host.GPU{
			UUID:      g.uuid,
			Name:      g.name,
			PCI:       g.pci,
			Index:     g.index,
			IsDivided: g.isDivided != nil && *g.isDivided,
			Parts:     g.parts,
		})
	}
	return names
}

// Run samples at every interval until stop is closed, and once more at the end.
func (s *Sampler) Run(c clock.Clock, every time.Duration, sender *rows.Sender, stop <-chan struct{}) {
	ended := make(chan struct{}, len(s.devices))
	for _, g := range s.devices {
		go func() {
			g.sampleUntilStop(c, every, sender, stop)
			ended <- struct{}{}
		}()
	}
	<-stop
	deadline := time.After(maxThreadWait)
	for range s.devices {
		select {
		case <-ended:
		case <-deadline:
			s.stuck = true
			return
		}
	}
}

// sampleUntilStop samples one device. It locks its thread, because it measures the thread's CPU
// time.
func (g *gpu) sampleUntilStop(c clock.Clock, every time.Duration, sender *rows.Sender, stop <-chan struct{}) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	g.cpuBase = clock.ReadNs(unix.CLOCK_THREAD_CPUTIME_ID)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		g.runDueQueries(c, time.Now(), every/2, sender)
		select {
		case <-stop:
			g.runDueQueries(c, time.Now(), time.Hour, sender) // final values
			return
		case <-tick.C:
		}
	}
}

// runDueQueries runs the queries that are due within ahead.
func (g *gpu) runDueQueries(c clock.Clock, now time.Time, ahead time.Duration, sender *rows.Sender) {
	if g.lost {
		return
	}
	var sampled []format.Row
	for _, q := range g.queries {
		if q.next.After(now.Add(ahead)) {
			continue
		}
		q.next = now.Add(q.every)
		wall, cpu := clock.ReadNs(unix.CLOCK_MONOTONIC), clock.ReadNs(unix.CLOCK_THREAD_CPUTIME_ID)
		answer, ret := q.run(c)
		q.cost.Calls++
		q.cost.WallNs += clock.ReadNs(unix.CLOCK_MONOTONIC) - wall
		q.cost.CPUNs += clock.ReadNs(unix.CLOCK_THREAD_CPUTIME_ID) - cpu
		if ret != nvml.SUCCESS {
			g.noteQueryError(c, q, ret, sender)
			if g.lost {
				return
			}
			continue // no row, because 0 would be a measured value
		}
		sampled = append(sampled, answer...)
	}
	g.cost.Samples++
	g.cost.CPUNs = clock.ReadNs(unix.CLOCK_THREAD_CPUTIME_ID) - g.cpuBase
	sender.Send(sampled)
}

// noteQueryError notes a query's first error, and that the device has stopped answering.
func (g *gpu) noteQueryError(c clock.Clock, q *query, ret nvml.Return, sender *rows.Sender) {
	message := fmt.Sprintf("%s of device %d is missing in some samples: %s", q.name, g.index, explainNVMLError(ret))
	switch ret {
	case nvml.ERROR_GPU_IS_LOST, nvml.ERROR_RESET_REQUIRED, nvml.ERROR_GPU_NOT_FOUND, nvml.ERROR_UNINITIALIZED:
		g.lost = true
		message = fmt.Sprintf("device %d (%s) has stopped answering: %s", g.index, g.uuid, explainNVMLError(ret))
	}
	if q.noted {
		return
	}
	q.noted = true
	sender.Send(
		[]format.Row{
			{Kind: format.KindNote, Name: "nvml", StartNs: c.NowNs(), Device: int32(g.index), Message: message},
		},
	)
}

// SamplingCosts returns the time that NVML sampling took, by device. Call it after Run. It returns
// nil if a thread is blocked.
func (s *Sampler) SamplingCosts() []format.SamplingCost {
	if s.stuck {
		return nil
	}
	costs := make([]format.SamplingCost, 0, len(s.devices))
	for _, g := range s.devices {
		for _, q := range g.queries {
			q.cost.Name = q.name
			g.cost.WallNs += q.cost.WallNs
			g.cost.Queries = append(g.cost.Queries, q.cost)
		}
		costs = append(costs, g.cost)
	}
	return costs
}

// Close shuts NVML down, unless a thread is blocked in a call.
func (s *Sampler) Close() {
	if !s.stuck {
		nvml.Shutdown()
	}
}
