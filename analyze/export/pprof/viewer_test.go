package pprof

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/pprof/profile"
	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/analyzetest/viewers"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// callTypesWithoutGPU returns the types of profiles of calls that need no GPU times and no class host.
func callTypesWithoutGPU() []string {
	return slices.DeleteFunc(ListProfileTypes()[2:], func(name string) bool {
		return slices.Contains([]string{"gpu-time", "cpu", "off-cpu", "host"}, name)
	})
}

// profileFile writes a profile to a file and returns its path.
func profileFile(t *testing.T, p *profile.Profile) string {
	t.Helper()
	file, err := os.CreateTemp(t.TempDir(), "*.pb.gz")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Write(file); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	return file.Name()
}

// pprof runs the pprof program and returns its output.
func pprof(t *testing.T, args ...string) []byte {
	t.Helper()
	cmd := exec.Command(viewers.ToolPath(t, "bin", "pprof"), args...)
	cmd.Env = append(os.Environ(), "PPROF_BINARY_PATH="+t.TempDir(), "TZ=UTC", "HOME="+t.TempDir())
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("pprof %v: %v\n%s", args, err, stderr.Bytes())
	}
	return out
}

// TestPprofReadsProfilesOfCalls compares the output of the pprof program with golden files that
// were checked by eye.
func TestPprofReadsProfilesOfCalls(t *testing.T) {
	testclass.Browser(t)
	recording := analyzetest.WorkloadRecording(t)
	tl := recording.Timeline()
	for _, name := range callTypesWithoutGPU() {
		analyzetest.CompareGolden(
			t,
			"pprof."+name+".txt",
			pprof(t, "-top", profileFile(t, profileOf(t, tl, Options{Type: name}))),
		)
	}
	launches := profileFile(t, profileOf(t, tl, Options{Type: "launches"}))
	analyzetest.CompareGolden(t, "pprof.launches.tags.txt", pprof(t, "-tags", launches))
	analyzetest.CompareGolden(t, "pprof.launches.raw.txt", pprof(t, "-raw", launches))
	analyzetest.CompareGolden(t, "pprof.launches.lines.txt", pprof(t, "-traces", "-lines", "-focus=Mul", launches))

	for _, r := range recording.Rows { // a second run with half as many calls of add, and without copies
		if r.Kernel == analyzetest.AddKernelName && r.StartNs > analyzetest.Epoch+200*analyzetest.Ms {
			r.Kind, r.Name, r.Kernel = format.KindAPI, "cuFuncGetAttribute", ""
		}
	}
	recording.Path = filepath.Join(t.TempDir(), "after.parquet")
	after := profileFile(t, profileOf(t, recording.Timeline(), Options{Type: "launches"}))
	analyzetest.CompareGolden(t, "pprof.launches.diff.txt", pprof(t, "-top", "-diff_base="+launches, after))
}

// TestPerfettoReadsProfilesOfCalls imports every type of profile into trace_processor, and checks
// the number of frames.
func TestPerfettoReadsProfilesOfCalls(t *testing.T) {
	testclass.Browser(t)
	tl := analyzetest.WorkloadRecording(t).Timeline()
	for _, name := range []string{"launches", "copies"} {
		p := profileOf(t, tl, Options{Type: name, RootBy: "device"})
		results := viewers.QueryPerfetto(
			t,
			profileFile(t, p),
			viewers.PerfettoErrorsQuery,
			`select sample_type_type kind from __intrinsic_aggregate_profile order by id`,
			`select distinct name from stack_profile_frame order by 1`,
			`select cast(sum(s.value) as int) n from __intrinsic_aggregate_sample s join __intrinsic_aggregate_profile p on p.id = s.aggregate_profile_id
				where p.sample_type_type = '`+name+`'`,
		)
		if len(results[0]) != 0 || len(results[1]) != len(p.SampleType) {
			t.Errorf("%s: %v", name, results[:2])
		}
		frames := viewers.EncodeJSON(t, results[2])
		for _, want := range []string{"GPU 0 NVIDIA H200", "train; step (train.py)", "at::add(at::Tensor " +
			"const\\u0026)", "[gpu] "} {
			if !strings.Contains(frames, want) {
				t.Errorf("%s: no frame %s in %s", name, want, frames)
			}
		}
		if got, want := viewers.EncodeJSON(
			t,
			results[3],
		), `[{"n":`+viewers.EncodeJSON(
			t,
			sums(p)[0],
		)+`}]`; got != want {
			t.Errorf("%s: %s samples, want %s", name, got, want)
		}
	}
}
