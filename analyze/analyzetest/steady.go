package analyzetest

import (
	"maps"
	"slices"
	"testing"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/format"
)

// SteadyRecording returns a recording of one minute of a training without problems, from its first
// call. A step takes 100 ms: ten launches, a copy of a batch from pinned memory, and one
// synchronization, on a busy GPU. Memory comes from a pool.
func SteadyRecording(t testing.TB) *TestRecording {
	recording := NewTestRecording(t)
	recording.AddTwoGPUs()
	recording.AddStack(1, "train_step", "main", "_start")
	recording.AddStack(2, "load_weights", "main", "_start")
	recording.AddCall(format.KindAPI, "cuInit", 0, Ms)
	recording.AddPinned(Ms, 0x500000, 64*Mib)
	for i := range int64(60) { // warm-up: load the model and its kernels
		SetStackAndSite(
			recording.AddAlloc(10*Ms+i*10*Ms, 100*Us, 0x7f0000000000+i*64*Mib, 64*Mib),
			2,
			"load_weights (train.cc:10)",
		)
		SetStackAndSite(
			recording.AddCall(format.KindAPI, "cuLibraryLoadData", 15*Ms+i*10*Ms, Ms),
			2,
			"load_weights (train.cc:10)",
		)
	}
	for step := range int64(590) {
		begin := Second + step*100*Ms
		block := recording.AddAlloc(begin, Us, 0x7e0000000000+step%4*Mib, Mib)
		block.Name, block.MemoryKind = "cuMemAllocAsync", format.MemoryAsync
		SetStackAndSite(
			recording.AddCopy("cuMemcpyHtoDAsync_v2", "HtoD", begin+Us, 8*Us, 0x7f0000000000, 0x500000, 16*Mib),
			1,
			"train_step (train.cc:10)",
		)
		for k := range int64(10) {
			SetStackAndSite(recording.AddFullLaunch(begin+Ms+k*9*Ms, "gemm<float>(int)"), 1, "train_step (train.cc:10)")
		}
		SetStackAndSite(
			recording.AddSync("cuStreamSynchronize", begin+93*Ms, 6*Ms, 7, 0),
			1,
			"train_step (train.cc:10)",
		)
		free := recording.AddFree(begin+99*Ms+500*Us, Us, 0x7e0000000000+step%4*Mib)
		free.Name, free.MemoryKind = "cuMemFreeAsync", format.MemoryAsync
	}
	recording.addGPUSamples(map[string]float64{
		catalog.MetricSMActive:          92,
		catalog.MetricSMOccupancy:       40,
		catalog.MetricTensorActive:      35,
		"gpm_fp32_active_percent":       25,
		catalog.MetricDRAMBandwidth:     40,
		catalog.MetricClockEventReasons: 0,
		catalog.MetricMemoryUsed:        80 << 30,
		catalog.MetricMemoryTotal:       140 << 30,
	})
	return recording
}

// AddFullLaunch adds a launch whose grid fills a GPU.
func (recording *TestRecording) AddFullLaunch(at int64, kernel string) *format.Row {
	l := recording.AddLaunch(at, 6*Us, kernel, 7, 1)
	l.GridX, l.GridY, l.GridZ, l.BlockX, l.BlockY, l.BlockZ = 528, 1, 1, 256, 1, 1
	return l
}

// addGPUSamples adds samples of the process's GPU, twice a second from the first second on.
func (recording *TestRecording) addGPUSamples(metrics map[string]float64) {
	for at := Second; at <= 60*Second; at += Second / 2 {
		for _, name := range slices.Sorted(maps.Keys(metrics)) {
			recording.AddNVMLSample(1, at, name, metrics[name])
		}
	}
}

// ChangeSamples changes the values of a metric's samples. value gets the index of the sample.
func (recording *TestRecording) ChangeSamples(metric string, value func(i int) float64) {
	i := 0
	for _, r := range recording.Rows {
		if r.Kind == format.KindNVML && r.Name == metric {
			r.Value = value(i)
			i++
		}
	}
}

// ConstantSamples returns a function for ChangeSamples that gives every sample the value v.
func ConstantSamples(v float64) func(int) float64 { return func(int) float64 { return v } }

// RemoveRows removes the rows for which `is` returns true.
func (recording *TestRecording) RemoveRows(is func(*format.Row) bool) {
	recording.Rows = slices.DeleteFunc(recording.Rows, is)
}

// ShortenTo ends a recording at a time, and removes the rows near its end.
func (recording *TestRecording) ShortenTo(to int64) {
	recording.Meta.EndNs = Epoch + to
	recording.RemoveRows(func(r *format.Row) bool { return r.StartNs > Epoch+to-Second/10 })
}

// AddFragmentedAllocator adds events of PyTorch's allocator: a request fails although enough memory
// is free in pieces.
func AddFragmentedAllocator(recording *TestRecording) {
	const segment = int64(0x7b0000000000)
	recording.AddStack(9, "forward", "main")
	event := func(at int64, name string, ptr, bytes, allocated, reserved int64) *format.Row {
		return recording.AddRow(format.Row{
			Kind:           format.KindAllocator,
			Name:           name,
			StartNs:        Epoch + at,
			Pid:            42,
			Tid:            42,
			MemoryKind:     format.MemoryTorch,
			Ptr:            ptr,
			Bytes:          bytes,
			StackID:        9,
			StackStatus:    format.StackComplete,
			Site:           "forward (model.py:12)",
			AllocatedBytes: allocated,
			ReservedBytes:  reserved,
		})
	}
	total := int64(0)
	for i := range int64(10) {
		ptr, at := segment+i*1024*Mib, 50*Second+i*10*Ms
		event(at, format.AllocatorSegmentAlloc, ptr, 400*Mib, total, (i+1)*400*Mib)
		event(at+Ms, format.AllocatorAlloc, ptr, 200*Mib, total, (i+1)*400*Mib)
		total += 200 * Mib
	}
	event(51*Second, format.AllocatorOOM, 0, 1024*Mib, total, 4000*Mib).Value = float64(100 * Mib)
	// The program handles the error and continues.
}
