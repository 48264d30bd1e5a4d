package analyze

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"
	"github.com/gpurec/gpurec/cmd/gpurec/command"
	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"
)

// TestMain makes this test binary run as gpurec if a test starts it by that name. Tests can then
// interrupt a separate gpurec process.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"gpurec": func() { os.Exit(run(context.Background(), os.Args[1:])) },
	})
}

// run executes a gpurec command line in this process. Only the command analyze exists.
func run(ctx context.Context, args []string) int {
	root := &cobra.Command{Use: "gpurec"}
	root.AddCommand(New())
	return command.Run(ctx, root, args)
}

// runHere executes a gpurec command line in the current folder. It returns the text on standard
// output and standard error, and the exit code.
func runHere(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	capture := func(stream **os.File) func() string {
		file, err := os.CreateTemp(t.TempDir(), "")
		if err != nil {
			t.Fatal(err)
		}
		before := *stream
		*stream = file
		return func() string {
			*stream = before
			file.Close()
			text, err := os.ReadFile(file.Name())
			if err != nil {
				t.Fatal(err)
			}
			return string(text)
		}
	}
	out, err := capture(&os.Stdout), capture(&os.Stderr)
	code = run(context.Background(), args)
	return out(), err(), code
}

// leakyRecording writes a recording of 60 s in which one call site leaks 1 MiB every 100 ms.
func leakyRecording(t *testing.T, path string) {
	t.Helper()
	w, err := format.Create(path, format.Options{})
	if err != nil {
		t.Fatal(err)
	}
	start := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC).UnixNano()
	for i := range int64(600) {
		row := format.Row{
			Kind:        format.KindAlloc,
			Name:        "cuMemAlloc_v2",
			StartNs:     start + i*1e8,
			DurNs:       1000,
			Pid:         4242,
			Tid:         4242,
			Device:      0,
			Ptr:         0x7f0000000000 + i<<20,
			Bytes:       1 << 20,
			MemoryKind:  format.MemoryDevice,
			StackStatus: format.StackNone,
			Site:        "step (train.py:88)",
		}
		if err := w.Write(format.ClassMemory, []format.Row{row}); err != nil {
			t.Fatal(err)
		}
		launch := format.Row{
			Kind:    format.KindLaunch,
			Name:    "cuLaunchKernel",
			StartNs: row.StartNs + 2000,
			DurNs:   1000,
			Pid:     4242,
			Tid:     4242,
			Kernel:  "gemm",
		}
		if err := w.Write(format.ClassCall, []format.Row{launch}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Finish(format.Meta{StartNs: start, EndNs: start + 60e9}); err != nil {
		t.Fatal(err)
	}
}

func TestAnalyzeCommandLines(t *testing.T) {
	testclass.Unit(t)
	t.Chdir(t.TempDir())
	leakyRecording(t, "run.parquet")
	for line, want := range map[string]struct {
		code           int
		stdout, stderr string // substrings of the output
	}{
		"analyze run.parquet": {0, "growing-site  memory grows by 600.0 " +
			"MiB/min", ""},
		"analyze summary run.parquet": {0, "growing-site  memory grows by 600.0 " +
			"MiB/min", ""},
		"analyze leaks run.parquet":                {0, "growing", ""},
		"analyze leaks --group-by pid run.parquet": {0, "4242", ""},
		"analyze leaks --format csv --no-header run.parquet": {0, "growing,", "quality: 1,200 " +
			"events, 0 lost"},
		"analyze leaks --explain":                       {0, "Theil-Sen", ""},
		"analyze leaks --fail-on growing>0 run.parquet": {3, "growing", "failed on growing>0 (it is 1)"},
		"analyze leaks --fail-on growing>1 run.parquet": {0, "growing", ""},
		"analyze leaks --fail-on growing run.parquet":   {2, "", "has no comparison"},
		"analyze leaks --fail-on groing>0 run.parquet":  {2, "", `this report has no number "groing"`},
		"analyze leaks --pid 7 run.parquet": {0, "", "no row matches --pid 7; " +
			"the recording has pids 4242"},
		"analyze leaks --format html run.parquet": {2, "", "--format html: use gpurec " +
			"analyze report"},
		"analyze leaks --format xml run.parquet":                     {2, "", `unknown format "xml"`},
		"analyze leaks --group-by colour run.parquet":                {2, "", `cannot group by "colour"`},
		"analyze leaks --from 10s --to 5s run.parquet":               {2, "", "--from 10s is after --to 5s"},
		"analyze leaks --from yesterday run.parquet":                 {2, "", "--from: read time"},
		"analyze leaks --to 2026-11-20T10:00:10Z run.parquet":        {0, "100.0 MiB", ""},
		"analyze leaks --min-bytes 2MiB run.parquet":                 {0, "total: live 0 B", "no row matches"},
		"analyze leaks --min-bytes lots run.parquet":                 {2, "", "--min-bytes"},
		"analyze leaks --stream seven run.parquet":                   {2, "", "--stream"},
		"analyze leaks --top -1 run.parquet":                         {2, "", "negative"},
		"analyze --kernel ( run.parquet":                             {2, "", "--kernel"},
		"analyze --kernel gemm run.parquet":                          {0, "gemm", ""},
		"analyze --from 2m run.parquet":                              {0, "", "outside the recording"},
		"analyze stacks run.parquet":                                 {0, "1,200 calls, 1,200 without stack", ""},
		"analyze stacks --explain":                                   {0, "reason why the stack is truncated", ""},
		"analyze stacks --fail-on stacks_none_pct>99 run.parquet":    {3, "", "stacks_none_pct>99 (it is 100)"},
		"analyze stacks --hide-frames ( run.parquet":                 {2, "", `--hide-frames: "("`},
		"analyze leaks --hide-frames none run.parquet":               {0, "growing", ""},
		"analyze pprof --hide-frames default -o e.pb.gz run.parquet": {0, "", "1 samples -> e.pb.gz"},
		"analyze gpu run.parquet":                                    {0, "no NVML samples", ""},
		"analyze gpu --explain":                                      {0, "clock_event_reasons", ""},
		"analyze gpu --fail-on problems>0 run.parquet":               {0, "", ""},
		"analyze xid run.parquet":                                    {0, "no source of the recorder reported an Xid", ""},
		"analyze xid --explain":                                      {0, "launches_before", ""},
		"analyze xid --fail-on xids==0 run.parquet":                  {3, "", "xids==0 (it is 0)"},
		"analyze api run.parquet":                                    {0, "cuLaunchKernel", ""},
		"analyze api --group-by site --format csv run.parquet": {0, "cuMemAlloc_v2,step " +
			"(train.py:88)", "quality: 1,200 events, 0 lost"},
		"analyze api --group-by colour run.parquet":                     {2, "", `cannot group by "colour"; use one of name, site, stack, thread, stream`},
		"analyze api --explain":                                         {0, "the error is below 0.8%", ""},
		"analyze api --fail-on calls>1199 run.parquet":                  {3, "", "calls>1199 (it is 1200)"},
		"analyze kernels run.parquet":                                   {0, "600 launches, 1 kernel", ""},
		"analyze kernels --kernel conv run.parquet":                     {0, "no launches in the window", ""},
		"analyze copies run.parquet":                                    {0, "no copies in the window", ""},
		"analyze copies --explain":                                      {0, "pageable", ""},
		"analyze sync --fail-on waits>0 run.parquet":                    {0, "no waits in the window", ""},
		"analyze sync --explain":                                        {0, "all work of the context, by all threads (cudaDeviceSynchronize)", ""},
		"analyze gaps run.parquet":                                      {0, "599 gaps", ""},
		"analyze gaps --min-gap 1s run.parquet":                         {0, "total: 0 gaps", ""},
		"analyze gaps --min-gap 0 run.parquet":                          {2, "", "--min-gap 0s: must be above 0"},
		"analyze gaps --fail-on gap_pct>90 run.parquet":                 {3, "outside CUDA", "gap_pct>90"},
		"analyze errors run.parquet":                                    {0, "no call returned an error", ""},
		"analyze memory run.parquet":                                    {0, "600.0 MiB", ""},
		"analyze memory --at 10s run.parquet":                           {0, "held 100.0 MiB", ""},
		"analyze memory --at end --format csv --no-header run.parquet":  {0, "629145600,100,600,", "quality:"},
		"analyze memory --at noon run.parquet":                          {2, "", "--at: read time"},
		"analyze memory --reconcile run.parquet":                        {0, "the recording has no NVML samples of the memory", ""},
		"analyze memory --fail-on held_bytes>100MiB run.parquet":        {3, "", "held_bytes>100MiB"},
		"analyze leeks":                                                 {2, "", "hint: gpurec analyze leaks"},
		"analyze leaks nothing.parquet":                                 {1, "", "nothing.parquet does not exist"},
		"analyze frag a b":                                              {2, "", "accepts at most 1 arg"},
		"analyze pprof --type wall run.parquet":                         {2, "", "--type wall"},
		"analyze pprof --type cpu run.parquet":                          {1, "", "gpurec record --host auto"},
		"analyze pprof -o a.pb.gz run.parquet":                          {0, "", "1 samples -> a.pb.gz"},
		"analyze pprof --fail-on lost_events>0 -o b.pb.gz run.parquet":  {0, "", "samples"},
		"analyze perfetto --max-slices 100 -o a.pftrace.gz run.parquet": {0, "", "calls from 3.3"},
		"analyze perfetto --kernel gemm -o b.pftrace run.parquet":       {0, "", "1,200 calls -> b.pftrace"},
		"analyze perfetto --max-slices -1 -o c.pftrace run.parquet":     {2, "", "negative"},
		"analyze perfetto --split --max-slices 700 -o s.pftrace.gz " +
			"run.parquet": {0, "", "1,200 calls -> s.pftrace.gz … s.3.pftrace.gz (3 files)"},
		"analyze perfetto --split -o t.pftrace run.parquet": {0, "", "1,200 calls -> t.pftrace; " +
			"next: open the file"},
		"analyze perfetto --split --max-slices 0 run.parquet":             {2, "", "--split needs --max-slices"},
		"analyze perfetto --split -o - run.parquet":                       {2, "", "--split cannot write several files to standard output"},
		"analyze perfetto --fail-on events>0 -o d.pftrace.gz run.parquet": {3, "", "events>0 (it is 1200)"},
	} {
		stdout, stderr, code := runHere(t, strings.Fields(line)...)
		if code != want.code || !strings.Contains(stdout, want.stdout) || !strings.Contains(stderr, want.stderr) {
			t.Errorf("gpurec %s: exit %d, want %d\nstdout: %s\nstderr: %s", line, code, want.code, stdout, stderr)
		}
		if code != message.ExitOK && code != message.ExitFailOn && stdout != "" {
			t.Errorf("gpurec %s fails and prints %q to standard output", line, stdout)
		}
	}
}

// TestAnalyzeUnknownColumnAndPid checks that reports refuse an unknown column, and say so if no row
// matches a filter.
func TestAnalyzeUnknownColumnAndPid(t *testing.T) {
	testclass.Unit(t)
	t.Chdir(t.TempDir())
	leakyRecording(t, "run.parquet")
	for _, report := range []string{"leaks", "stacks", "api", "kernels", "errors"} {
		_, stderr, code := runHere(t, "analyze", report, "--sort", "colour", "run.parquet")
		if code != message.ExitUsage || !strings.Contains(stderr, `no column "colour"`) {
			t.Errorf("%s --sort colour: exit %d, %s", report, code, stderr)
		}
		_, stderr, code = runHere(t, "analyze", report, "--pid", "7", "run.parquet")
		if code != message.ExitOK || !strings.Contains(stderr, "no row matches --pid 7") {
			t.Errorf("%s --pid 7: exit %d, %s", report, code, stderr)
		}
	}
}

func TestAnalyzeReadsNewestRecording(t *testing.T) {
	testclass.Unit(t)
	t.Chdir(t.TempDir())
	if _, stderr, code := runHere(
		t,
		"analyze",
	); code != message.ExitFailed ||
		!strings.Contains(stderr, "this folder has no gpurec-*.parquet") {
		t.Errorf("empty folder: exit %d, %s", code, stderr)
	}
	for i, name := range []string{"gpurec-b-1.parquet", "gpurec-a-2.parquet", "other.parquet"} {
		leakyRecording(t, name)
		at := time.Now().Add(time.Duration(i) * time.Hour)
		if err := os.Chtimes(name, at, at); err != nil {
			t.Fatal(err)
		}
	}
	_, stderr, code := runHere(t, "analyze", "leaks")
	if code != message.ExitOK || !strings.Contains(stderr, "reading gpurec-a-2.parquet") {
		t.Errorf("exit %d, %s", code, stderr)
	}
}

func TestAnalyzeWritesFiles(t *testing.T) {
	testclass.Unit(t)
	t.Chdir(t.TempDir())
	leakyRecording(t, "run.parquet")
	for range 2 { // the second run fails: the default output next to the recording exists
		runHere(t, "analyze", "pprof", "run.parquet")
		runHere(t, "analyze", "perfetto", "run.parquet")
	}
	for _, name := range []string{"run.pb.gz", "run.pftrace"} {
		if info, err := os.Stat(name); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, stderr, code := runHere(
		t,
		"analyze",
		"pprof",
		"run.parquet",
	); code != message.ExitFailed ||
		!strings.Contains(stderr, "run.pb.gz exists") {
		t.Errorf("exit %d, %s", code, stderr)
	}
	if _, stderr, code := runHere(t, "analyze", "pprof", "--force", "run.parquet"); code != message.ExitOK {
		t.Errorf("exit %d, %s", code, stderr)
	}
	file, err := os.Open("run.pb.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if p, err := profile.Parse(file); err != nil || len(p.Sample) != 1 || p.Sample[0].Value[3] != 600<<20 {
		t.Errorf("profile: %v", err)
	}
	if stdout, _, code := runHere(
		t,
		"analyze",
		"pprof",
		"-o",
		"-",
		"run.parquet",
	); code != message.ExitOK ||
		!strings.HasPrefix(stdout, "\x1f\x8b") {
		t.Errorf("standard output: exit %d, %d bytes", code, len(stdout))
	}
	if _, _, code := runHere(t, "analyze", "perfetto", "-o", "run.pftrace.gz", "run.parquet"); code != message.ExitOK {
		t.Errorf("exit %d", code)
	}
	plain, err := os.ReadFile("run.pftrace")
	if err != nil {
		t.Fatal(err)
	}
	zipped, err := os.Open("run.pftrace.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer zipped.Close()
	in, err := gzip.NewReader(zipped)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(in); err != nil || string(text) != string(plain) {
		t.Errorf("the compressed trace differs from the plain one: %v", err)
	}
	// perfetto --split writes no file if it cannot write all files.
	if err := os.WriteFile("parts.2.pftrace", []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, stderr, code := runHere(
		t,
		"analyze",
		"perfetto",
		"--split",
		"--max-slices",
		"700",
		"-o",
		"parts.pftrace",
		"run.parquet",
	); code != message.ExitFailed ||
		!strings.Contains(stderr, "parts.2.pftrace exists") {
		t.Errorf("exit %d, %s", code, stderr)
	}
	if files, err := filepath.Glob("parts*"); err != nil || len(files) != 1 || files[0] != "parts.2.pftrace" {
		t.Errorf("files after a failed --split: %v, %v", files, err)
	}
	if _, _, code := runHere(
		t,
		"analyze",
		"perfetto",
		"-o",
		filepath.Join("absent", "run.pftrace"),
		"run.parquet",
	); code != message.ExitFailed {
		t.Errorf("missing output folder: exit %d", code)
	}
}

func TestAnalyzeJSONIsOneObject(t *testing.T) {
	testclass.Unit(t)
	t.Chdir(t.TempDir())
	leakyRecording(t, "run.parquet")
	for _, command := range [][]string{{"analyze"}, {"analyze", "leaks"}} {
		stdout, stderr, code := runHere(t, append(command, "--format", "json", "run.parquet")...)
		var report struct {
			SchemaVersion int    `json:"schema_version"`
			Command       string `json:"command"`
			Quality       struct {
				Events    int64  `json:"events"`
				GPUTiming string `json:"gpu_timing"`
			} `json:"quality"`
		}
		if err := json.Unmarshal([]byte(stdout), &report); err != nil || code != message.ExitOK || stderr != "" {
			t.Errorf("%v: exit %d, %v, %s", command, code, err, stderr)
		}
		if report.SchemaVersion != 1 || report.Quality.Events != 1200 || report.Quality.GPUTiming != "none" {
			t.Errorf("%v: %+v", command, report)
		}
	}
}

func TestColorFlag(t *testing.T) {
	testclass.Unit(t)
	t.Chdir(t.TempDir())
	leakyRecording(t, "run.parquet")
	if stdout, _, _ := runHere(
		t,
		"analyze",
		"leaks",
		"--color",
		"always",
		"run.parquet",
	); !strings.Contains(
		stdout,
		"\x1b[31mgrowing\x1b[0m",
	) {
		t.Errorf("always: %q", stdout)
	}
	if stdout, _, _ := runHere(t, "analyze", "leaks", "run.parquet"); strings.Contains(stdout, "\x1b") {
		t.Errorf("colors in a file: %q", stdout)
	}
	if _, stderr, code := runHere(
		t,
		"analyze",
		"leaks",
		"--color",
		"pink",
		"run.parquet",
	); code != message.ExitUsage ||
		!strings.Contains(stderr, "--color pink: must be one of auto, always, never") {
		t.Errorf("exit %d, %s", code, stderr)
	}
}
