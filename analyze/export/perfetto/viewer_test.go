package perfetto

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/analyzetest/viewers"
	"github.com/gpurec/gpurec/analyze/export/pprof"
	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report/memory"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

func TestPerfettoReadsTheTrace(t *testing.T) {
	testclass.Browser(t)
	recording := analyzetest.TrainingRecording(t)
	recording.AddRow(
		format.Row{
			Kind:    format.KindLost,
			Name:    "launch",
			StartNs: analyzetest.Epoch + 5*analyzetest.Second,
			DurNs:   100 * analyzetest.Ms,
			Value:   1204,
			Device:  -1,
		},
	)
	// a call inside of an allocation
	in := recording.AddCall(format.KindAPI, "cuCtxGetCurrent", 1500*analyzetest.Ms+50*analyzetest.Us, 20*analyzetest.Us)
	in.ParentStartNs = analyzetest.Epoch + 1500*analyzetest.Ms
	tl := recording.Timeline()
	path := filepath.Join(t.TempDir(), "run.pftrace")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := WriteTrace(tl, file, Options{}); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	results := viewers.QueryPerfetto(
		t,
		path,
		viewers.PerfettoErrorsQuery,
		`select s.name name, count(*) n from slice s join thread_track t on s.track_id = t.id group by 1`,
		`select cast(max(c.value) as int) peak from counter c join counter_track t on c.track_id = t.id where t.name = 'live memory'`,
		`select count(*) n from slice where dur < 0`,
		`select count(*) n, count(distinct c.callsite_id) stacks from __intrinsic_track_event_callstacks c join slice s on s.id = c.slice_id`,
		`select f.name name from __intrinsic_track_event_callstacks c join stack_profile_callsite s on s.id = c.callsite_id
			join stack_profile_frame f on f.id = s.frame_id group by 1`,
		`select count(*) n from flow`,
		`select max(s.depth) depth from slice s where s.name = 'cuCtxGetCurrent'`,
		`select p.name process, t.name thread, t.tid tid from thread t join process p using (upid) where t.tid in (42, 43) order by tid`,
		`select to_realtime(min(ts)) at from slice where name = 'cuMemAlloc_v2'`,
		`select a.key key, count(*) n from slice s join args a on s.arg_set_id = a.arg_set_id where s.name = 'cuLaunchKernel' group by 1`,
		`select name from slice where name glob '*launch calls lost' or name glob 'Xid*' or name glob 'allocation failed*' order by 1`,
		`select count(*) n, min(cast(c.value as int)) low from counter c join counter_track t on c.track_id = t.id where t.name = 'NVML memory_used_bytes'`,
		`select m.build_id build_id from stack_profile_mapping m where m.name = '/app/train' limit 1`,
	)
	if len(results[0]) != 0 {
		t.Errorf("trace_processor complains: %v", results[0])
	}
	want := make(map[string]float64)
	lanes := 0.0
	for _, r := range recording.Rows {
		if c := format.ClassOf(r.Kind); c == format.ClassMemory || c == format.ClassCall {
			want[r.Name]++
			if timeline.IsStreamWork(r.Kind) {
				lanes++
			}
		}
	}
	for _, row := range results[1] {
		if name := row["name"].(string); row["n"] != want[name] {
			t.Errorf("%v slices of %s, %v rows", row["n"], name, want[name])
		}
		delete(want, row["name"].(string))
	}
	if len(want) > 0 {
		t.Errorf("no slices of %v", want)
	}
	levels := memory.NewLevelScan(tl, &query.Filter{})
	if _, err := tl.ReplayMemory(func(_ *livemem.Set, c *livemem.Change) { levels.OnDriverChange(c) }); err != nil {
		t.Fatal(err)
	}
	for i, want := range map[int]string{
		2:  `[{"peak":` + viewers.EncodeJSON(t, levels.Total[0].Peak) + `}]`,
		3:  `[{"n":0}]`,
		6:  `[{"n":` + viewers.EncodeJSON(t, lanes) + `}]`,
		7:  `[{"depth":1}]`,
		8:  `[{"process":"train","thread":"main","tid":42},{"process":"train","thread":"loader","tid":43}]`,
		9:  `[{"at":` + viewers.EncodeJSON(t, "1790000000500000000") + `}]`,
		11: `[{"name":"1,204 launch calls lost"},{"name":"Xid 31: MMU fault"},{"name":"allocation failed: 200.0 GiB"}]`,
		12: `[{"low":10737418240,"n":6}]`,
		13: `[{"build_id":"beef"}]`,
	} {
		if got := viewers.EncodeJSON(t, results[i]); got != want {
			t.Errorf("query %d: %s, want %s", i, got, want)
		}
	}
	if row := results[4][0]; row["n"].(float64) < 1000 || row["stacks"].(float64) != 4 {
		t.Errorf("callstacks: %v", row)
	}
	keys := viewers.EncodeJSON(t, results[10])
	for _, key := range []string{"debug.kernel", "debug.stream", "debug.grid", "debug.block"} {
		if !strings.Contains(keys, `"`+key+`"`) {
			t.Errorf("launches have no %s: %s", key, keys)
		}
	}
}

func TestPerfettoReadsTheProfile(t *testing.T) {
	testclass.Browser(t)
	p, _, _, err := pprof.BuildHeapProfile(analyzetest.TrainingRecording(t).Timeline(), query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "run.pb.gz")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Write(file); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	results := viewers.QueryPerfetto(
		t,
		path,
		viewers.PerfettoErrorsQuery,
		`select sample_type_type kind from __intrinsic_aggregate_profile order by id`,
	)
	if got := viewers.EncodeJSON(
		t,
		results,
	); got != `[[],[{"kind":"alloc_objects"},{"kind":"alloc_space"},{"kind":"inuse_objects"},{"kind":"inuse_space"}]]` {
		t.Error(got)
	}
}

// TestPprofReadsTheProfile compares the output of the pprof program with golden files that were
// checked by eye.
func TestPprofReadsTheProfile(t *testing.T) {
	testclass.Browser(t)
	p, _, _, err := pprof.BuildHeapProfile(analyzetest.TrainingRecording(t).Timeline(), query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "run.pb.gz")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Write(file); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{
		"inuse": {"-top", "-unit=MB"},
		"alloc": {"-top", "-cum", "-sample_index=alloc_space", "-unit=MB"},
		"large": {"-top", "-unit=MB", "-tagfocus=bytes=100mb:"},
		"tags":  {"-tags"},
	} {
		cmd := exec.Command(viewers.ToolPath(t, "bin", "pprof"), append(args, path)...)
		cmd.Env = append(os.Environ(), "PPROF_BINARY_PATH="+t.TempDir(), "TZ=UTC", "HOME="+t.TempDir())
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("pprof %v: %v\n%s", args, err, stderr.Bytes())
		}
		analyzetest.CompareGolden(t, "pprof."+name+".txt", out)
	}
}
