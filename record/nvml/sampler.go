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

// Sampler samples the GPUs through NVML. Each has a thread of its own: a call about a GPU that has
// fallen off the bus can take minutes.
type Sampler struct {
	devices       []*gpu
	DriverVersion string
	CUDAVersion   string
	stuck         bool // a thread did not come back from NVML
}

// gpu is a device and what it is asked for. Only its thread uses it after it was opened.
type gpu struct {
	index     int
	handle    nvml.Device
	uuid      string
	name      string
	pci       string // domain:bus:device.function
	total     uint64 // bytes
	isDivided *bool  // by MIG; nil: not known
	parts     []format.MIGDevice
	queries   []*query
	lost      bool // it does not answer any more
	cost      format.SamplingCost
	cpuBase   int64 // what the thread had done before it sampled, in ns
}

// query is something that a device supports, asked whenever its period is over.
type query struct {
	name  string
	every time.Duration // 0: at every sample
	run   func(c clock.Clock) ([]format.Row, nvml.Return)

	next   time.Time
	silent bool // an error was noted already
	cost   format.QueryCost
}

// ErrNoNVML says why there are no GPU samples.
var ErrNoNVML = errors.New("no NVML")

// stuckAfter is how long the end of a recording waits for a call of NVML.
const stuckAfter = 3 * time.Second

// Open loads NVML and looks up the devices. An error matches ErrNoNVML.
func Open() (*Sampler, error) {
	if ret := nvml.Init(); ret != nvml.SUCCESS {
		return nil, fmt.Errorf("%w: %s", ErrNoNVML, explainNVML(ret))
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
		return nil, fmt.Errorf("%w: count devices: %s", ErrNoNVML, explainNVML(ret))
	}
	for i := range n {
		if g, err := openGPU(i); err == nil {
			t.devices = append(t.devices, g)
		}
	}
	return t, nil
}

// explainNVML avoids nvml.ErrorString where the library is not there to ask.
func explainNVML(ret nvml.Return) string {
	if ret == nvml.ERROR_LIBRARY_NOT_FOUND {
		return "libnvidia-ml.so.1 was not found"
	}
	return nvml.ErrorString(ret)
}

// has reports whether this driver's NVML has a function. go-nvml binds at the first
// call, and calling what an older driver lacks would end this process.
func has(symbol string) bool { return nvml.Extensions().LookupSymbol(symbol) == nil }

// identifyGPU opens a device and reads what names it.
func identifyGPU(index int) (*gpu, error) {
	handle, ret := nvml.DeviceGetHandleByIndex(index)
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("open device %d: %s", index, explainNVML(ret))
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

func openGPU(index int) (*gpu, error) {
	g, err := identifyGPU(index)
	if err != nil {
		return nil, err
	}
	handle := g.handle
	if m, ret := handle.GetMemoryInfo(); ret == nvml.SUCCESS {
		g.total = m.Total
	}
	if has("nvmlDeviceGetPciInfo_v3") {
		if pci, ret := handle.GetPciInfo(); ret == nvml.SUCCESS {
			g.pci = pciName(text(pci.BusId[:]))
		}
	}
	g.openMIG()
	g.queries = append(g.queries, g.metricQueries()...)
	g.queries = append(g.queries, g.fieldQueries()...)
	g.queries = append(g.queries, g.gpmQueries()...)
	g.queries = append(g.queries, g.processQueries()...)
	return g, nil
}

// GPUs returns the GPUs in the order of NVML.
func (t *Sampler) GPUs() []host.GPU {
	names := make([]host.GPU, 0, len(t.devices))
	for _, g := range t.devices {
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

// Run samples every interval until stop is closed, and once more then.
func (t *Sampler) Run(c clock.Clock, every time.Duration, sender *rows.Sender, stop <-chan struct{}) {
	ended := make(chan struct{}, len(t.devices))
	for _, g := range t.devices {
		go func() {
			g.run(c, every, sender, stop)
			ended <- struct{}{}
		}()
	}
	<-stop
	deadline := time.After(stuckAfter)
	for range t.devices {
		select {
		case <-ended:
		case <-deadline:
			t.stuck = true
			return
		}
	}
}

// run samples one device. The thread is the goroutine's alone, for its CPU time is
// what sampling costs.
func (g *gpu) run(c clock.Clock, every time.Duration, sender *rows.Sender, stop <-chan struct{}) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	g.cpuBase = clock.Ns(unix.CLOCK_THREAD_CPUTIME_ID)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		g.sample(c, time.Now(), every/2, sender)
		select {
		case <-stop:
			g.sample(c, time.Now(), time.Hour, sender) // what things came to
			return
		case <-tick.C:
		}
	}
}

// sample asks what is due or will be within ahead.
func (g *gpu) sample(c clock.Clock, now time.Time, ahead time.Duration, sender *rows.Sender) {
	if g.lost {
		return
	}
	var sampled []format.Row
	for _, q := range g.queries {
		if q.next.After(now.Add(ahead)) {
			continue
		}
		q.next = now.Add(q.every)
		wall, cpu := clock.Ns(unix.CLOCK_MONOTONIC), clock.Ns(unix.CLOCK_THREAD_CPUTIME_ID)
		answer, ret := q.run(c)
		q.cost.Calls++
		q.cost.WallNs += clock.Ns(unix.CLOCK_MONOTONIC) - wall
		q.cost.CPUNs += clock.Ns(unix.CLOCK_THREAD_CPUTIME_ID) - cpu
		if ret != nvml.SUCCESS {
			g.note(c, q, ret, sender)
			if g.lost {
				return
			}
			continue // an absent sample, not a zero
		}
		sampled = append(sampled, answer...)
	}
	g.cost.Samples++
	g.cost.CPUNs = clock.Ns(unix.CLOCK_THREAD_CPUTIME_ID) - g.cpuBase
	sender.Send(sampled)
}

// note says once that a query was not answered, or that the device is lost.
func (g *gpu) note(c clock.Clock, q *query, ret nvml.Return, sender *rows.Sender) {
	says := fmt.Sprintf("%s of device %d is missing in some samples: %s", q.name, g.index, explainNVML(ret))
	switch ret {
	case nvml.ERROR_GPU_IS_LOST, nvml.ERROR_RESET_REQUIRED, nvml.ERROR_GPU_NOT_FOUND, nvml.ERROR_UNINITIALIZED:
		g.lost = true
		says = fmt.Sprintf("device %d (%s) does not answer any more: %s", g.index, g.uuid, explainNVML(ret))
	}
	if q.silent {
		return
	}
	q.silent = true
	sender.Send(
		[]format.Row{{Kind: format.KindNote, Name: "nvml", StartNs: c.NowNs(), Device: int32(g.index), Message: says}},
	)
}

// Costs returns the cost of sampling by device, after Run.
func (t *Sampler) Costs() []format.SamplingCost {
	if t.stuck {
		return nil
	}
	costs := make([]format.SamplingCost, 0, len(t.devices))
	for _, g := range t.devices {
		for _, q := range g.queries {
			q.cost.Name = q.name
			g.cost.WallNs += q.cost.WallNs
			g.cost.Queries = append(g.cost.Queries, q.cost)
		}
		costs = append(costs, g.cost)
	}
	return costs
}

// Close shuts NVML down, unless a call about a lost GPU hangs.
func (t *Sampler) Close() {
	if !t.stuck {
		nvml.Shutdown()
	}
}
