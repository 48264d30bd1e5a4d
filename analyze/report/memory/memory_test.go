package memory_test

import (
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/stack"
	"github.com/gpurec/gpurec/analyze/model/state"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/memory"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

func TestMemoryReport(t *testing.T) {
	testclass.Unit(t)
	tl := analyzetest.TwoGPURecording(t).Timeline()
	r, err := memory.RunWithOptions(tl, memory.Options{Options: query.Options{Top: 20, MaxFrames: 12}})
	if err != nil {
		t.Fatal(err)
	}
	analyzetest.CompareGoldenReports(t, r, "memory", 110)
	r, err = memory.RunWithOptions(tl, memory.Options{Options: query.Options{Top: 20, MaxFrames: 12}, Reconcile: true})
	if err != nil {
		t.Fatal(err)
	}
	analyzetest.CompareGoldenReports(t, r, "reconcile", 110)
}

func TestHoldersAtAMoment(t *testing.T) {
	testclass.Unit(t)
	for name, c := range map[string]struct {
		opt  memory.Options
		held int64
		want string // libraries and bytes in MiB
	}{
		"the peak":   {memory.Options{}, 8*512 + 32, "PyTorch device, PyTorch host, cuBLAS device"},
		"the end":    {memory.Options{At: query.MomentEnd}, 7*512 + 32, "PyTorch device, PyTorch host, cuBLAS device"},
		"a time":     {memory.Options{At: query.MomentGivenTime, AtNs: analyzetest.Epoch + 2550*analyzetest.Ms}, 512, "PyTorch device"},
		"before all": {memory.Options{At: query.MomentGivenTime, AtNs: analyzetest.Epoch}, 0, ""},
		"a window":   {memory.Options{Options: query.Options{Filter: query.Filter{ToNs: analyzetest.Epoch + 3200*analyzetest.Ms}}}, 512 + 32, "PyTorch device, cuBLAS device"},
		"from after the peak": {
			memory.Options{Options: query.Options{Filter: query.Filter{FromNs: analyzetest.Epoch + 21*analyzetest.Second}}},
			7*512 + 32,
			"PyTorch device, PyTorch host, cuBLAS device",
		},
	} {
		tl := analyzetest.TwoGPURecording(t).Timeline()
		r, err := memory.RunWithOptions(tl, c.opt)
		if err != nil {
			t.Fatal(err)
		}
		if got, _, _ := r.FindNumber("held_bytes"); got != float64(c.held*analyzetest.Mib) {
			t.Errorf("%s: %v MiB held, want %d", name, got/float64(analyzetest.Mib), c.held)
		}
		var got []string
		libraries, kinds := analyzetest.ColumnTexts(
			t,
			r,
			"holders",
			"library",
		), analyzetest.ColumnTexts(
			t,
			r,
			"holders",
			"memory_kind",
		)
		for i := range libraries {
			got = append(got, libraries[i]+" "+kinds[i])
		}
		if strings.Join(got, ", ") != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestWhoAskedForMemory(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.NewTestRecording(t)
	for i, module := range []string{
		"/opt/lib/libc10_cuda.so",
		"/opt/lib/libnccl.so.2",
		"/app/own.so",
		"/usr/lib/libcudart.so.12",
	} {
		recording.AddLibraryStack(int32(i+1), module, "f")
	}
	tl := recording.Timeline()
	for id, want := range map[int32]string{
		1: "PyTorch",
		2: "NCCL",
		3: "own.so",
		4: "Python",
		5: stack.UnknownLibrary,
		0: stack.UnknownLibrary,
	} {
		if got := tl.Stacks.CallingLibrary(id); got != want {
			t.Errorf("stack %d: %s, want %s", id, got, want)
		}
	}
}

// parts returns the rows of the reconcile table as "part MiB".
func parts(t *testing.T, r *report.Report) map[string]int64 {
	list := make(map[string]int64)
	for i := range r.Tables {
		if r.Tables[i].Name == "reconcile" {
			table := &r.Tables[i]
			for k := range table.Rows {
				row := &table.Rows[k]
				list[table.Cell(row, "part").(string)] += table.Cell(row, "bytes").(int64) / analyzetest.Mib
			}
		}
	}
	return list
}

func TestReconcile(t *testing.T) {
	testclass.Unit(t)
	for name, c := range map[string]struct {
		change func(*analyzetest.TestRecording)
		at     int64
		want   map[string]int64
	}{
		"started in the recording": {
			func(*analyzetest.TestRecording) {}, 30 * analyzetest.Second,
			map[string]int64{"nvml": 520 + 30 + 7*512 + 32, "tracked": 7*512 + 32, "context and modules": 550, "not attributed": 0},
		},
		"before the module": {
			func(*analyzetest.TestRecording) {}, 5 * analyzetest.Second,
			map[string]int64{"nvml": 520 + 3*512 + 32, "tracked": 3*512 + 32, "context and modules": 520, "not attributed": 0},
		},
		"attached to a running process": {func(recording *analyzetest.TestRecording) {
			for _, r := range recording.Rows {
				if strings.HasPrefix(r.Name, "cuDevicePrimaryCtx") || r.Kind == format.KindNVML && r.Pid == 42 && r.StartNs < analyzetest.Epoch+3*analyzetest.Second {
					r.Kind, r.Name = format.KindNote, "gone"
				}
			}
		}, 30 * analyzetest.Second, map[string]int64{"nvml": 520 + 30 + 7*512 + 32, "tracked": 7*512 + 32, "context and modules": 30, "not attributed": 520}},
		"with pools": {func(recording *analyzetest.TestRecording) {
			for i := range int64(20) {
				a := analyzetest.SetContext(recording.AddMemoryCall(format.KindAlloc, format.MemoryAsync, analyzetest.Second+i*700*analyzetest.Ms, 0x7c0000000000+i*analyzetest.Mib, analyzetest.Mib), 0xc1, 0)
				a.Name = "cuMemAllocAsync"
			}
			for _, r := range recording.Rows {
				if r.Name == catalog.MetricProcessMemory && r.Pid == 42 {
					r.Value += float64(64 * analyzetest.Mib)
				}
			}
			for attribute, bytes := range map[float64]int64{
				timeline.PoolAttributeReserved: 64 * analyzetest.Mib,
				timeline.PoolAttributeUsed:     20 * analyzetest.Mib,
			} {
				pool := analyzetest.SetContext(recording.AddAPICall("cuMemPoolGetAttribute", 29*analyzetest.Second, 0xf00, 0), 0xc1, 0)
				pool.Bytes, pool.Value = bytes, attribute
			}
		}, 30 * analyzetest.Second, map[string]int64{"nvml": 64 + 550 + 7*512 + 32, "tracked": 20 + 7*512 + 32, "not attributed": 64 - 20 + 550, "unused in pools": 44}},
	} {
		recording := analyzetest.TwoGPURecording(t)
		c.change(recording)
		r, err := memory.RunWithOptions(
			recording.Timeline(),
			memory.Options{Reconcile: true, At: query.MomentGivenTime, AtNs: analyzetest.Epoch + c.at},
		)
		if err != nil {
			t.Fatal(err)
		}
		got := parts(t, r)
		for part, want := range c.want {
			if got[part] != want {
				t.Errorf("%s: %s %d MiB, want %d", name, part, got[part], want)
			}
		}
		if len(got) != len(c.want) {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestDevicesArePairedByUUID(t *testing.T) {
	testclass.Unit(t)
	tl := analyzetest.TwoGPURecording(t).Timeline()
	for ordinal, want := range map[int32]int32{0: 1, 1: -1, -1: -1} {
		if got, ok := tl.Facts.NVMLIndexOf(42, ordinal); got != want || ok != (want >= 0) {
			t.Errorf("device %d of the process is %d, %v", ordinal, got, ok)
		}
	}
	if got, ok := tl.Facts.OrdinalOf(42, 1); got != 0 || !ok {
		t.Errorf("GPU 1 is the process's %d, %v", got, ok)
	}
	if _, ok := tl.Facts.OrdinalOf(42, 0); ok {
		t.Error("GPU 0 is one of the process's")
	}
	recording := analyzetest.NewTestRecording(t)
	recording.AddRow(format.Row{Kind: format.KindDevice, Name: "NVIDIA H200", StartNs: analyzetest.Epoch})
	if got, ok := recording.Timeline().Facts.NVMLIndexOf(42, 0); got != 0 || !ok {
		t.Errorf("the only GPU is %d, %v", got, ok)
	}
}

// TestReconcileWithEarlierSegments attributes segments of PyTorch from before the recording, which no call shows.
func TestReconcileWithEarlierSegments(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.TwoGPURecording(t)
	before := state.AllocatorState{
		Pid: 42, Ranges: []state.AllocatorRange{{Ptr: 0x7c0000000000, Bytes: 96 * analyzetest.Mib}},
		Blocks: []state.AllocatorBlock{{Ptr: 0x7c0000000000, Bytes: 64 * analyzetest.Mib, Requested: 1}},
	}
	before.Allocated, before.Reserved = 64*analyzetest.Mib, 96*analyzetest.Mib
	recording.Rows = append(recording.Rows, analyzetest.EarlierRows(&before, analyzetest.Epoch+analyzetest.Second)...)
	for _, r := range recording.Rows {
		if r.Kind == format.KindNVML && r.Name == catalog.MetricProcessMemory && r.Pid == 42 {
			r.Value += float64(96 * analyzetest.Mib)
		}
	}
	r, err := memory.RunWithOptions(recording.Timeline(), memory.Options{
		At: query.MomentGivenTime, AtNs: analyzetest.Epoch + 30*analyzetest.Second, Reconcile: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := parts(t, r); got["from before"] != 96 || got["not attributed"] != 0 {
		t.Errorf("parts %v", got)
	}
}
