//go:build linux

package analyze

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// deepRecording writes a recording of kernel launches whose stack has Python frames, C++ frames and
// the kernel.
func deepRecording(t *testing.T, path string) {
	t.Helper()
	w, err := format.Create(path, format.Options{})
	if err != nil {
		t.Fatal(err)
	}
	start := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC).UnixNano()
	stack := format.Row{Kind: format.KindStack, StackID: 1, StackStatus: format.StackComplete, Frames: []format.Frame{
		{
			Func:       "cuLaunchKernel",
			SystemName: "cuLaunchKernel",
			Module:     "/usr/lib/libcuda.so.1",
			Addr:       0x1000,
			Type:       "native",
		},
		{
			Func:       "at::add(at::Tensor const&)",
			SystemName: "_ZN2at3addERKNS_6TensorE",
			Module:     "/lib/libtorch.so",
			Addr:       0x77,
			Type:       "native",
		},
		{Func: "step", File: "/home/u/train.py", Line: 88, Type: "python"},
	}}
	if err := w.Write(format.ClassStack, []format.Row{stack}); err != nil {
		t.Fatal(err)
	}
	for i := range int64(100) {
		launch := format.Row{
			Kind: format.KindLaunch, Name: "cuLaunchKernel", StartNs: start + i*1e6, DurNs: 1000, Pid: 4242, Tid: 4242,
			Kernel: "void gemm<float>(int)", StackID: 1, StackStatus: format.StackComplete,
		}
		if err := w.Write(format.ClassCall, []format.Row{launch}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Finish(format.Meta{StartNs: start, EndNs: start + 1e9}); err != nil {
		t.Fatal(err)
	}
}

// started runs gpurec until the end of the test. It returns the messages up to the first one that
// contains word.
func started(t *testing.T, word string, args ...string) (cmd *exec.Cmd, messages string) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command(program, args...)
	cmd.Args[0] = "gpurec" // TestMain runs gpurec under this name
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	for in := bufio.NewScanner(stderr); in.Scan(); {
		messages += in.Text() + "\n"
		if strings.Contains(in.Text(), word) {
			return cmd, messages
		}
	}
	t.Fatalf("gpurec %v ended: %s", args, messages)
	return nil, ""
}

func fetch(t *testing.T, url, host string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = host
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

// TestPprofIsServed checks that pprof's web pages show the Python, C++ and GPU frames of a stack,
// and that Ctrl-C ends the server.
func TestPprofIsServed(t *testing.T) {
	testclass.Unit(t)
	t.Chdir(t.TempDir())
	deepRecording(t, "run.parquet")
	cmd, messages := started(
		t,
		"serving",
		"analyze",
		"pprof",
		"--type",
		"launches",
		"--root-by",
		"device",
		"--http",
		":0",
		"run.parquet",
	)
	_, rest, _ := strings.Cut(messages, "http://")
	address, _, found := strings.Cut(rest, "/ui/")
	if !found || !strings.HasPrefix(address, "127.0.0.1:") && !strings.HasPrefix(address, "[::1]:") {
		t.Fatalf("the address is not a loopback address: %s", messages)
	}
	for _, page := range []string{"top", "flamegraph", ""} {
		status, body := fetch(t, "http://"+address+"/ui/"+page, "")
		for _, frame := range []string{
			"[gpu] void gemm\\u003cfloat\\u003e(int)",
			"at::add(at::Tensor const\\u0026)",
			"step (train.py)",
			"GPU 0",
		} {
			plain := strings.NewReplacer("\\u003c", "&lt;", "\\u003e", "&gt;", "\\u0026", "&amp;").Replace(frame)
			if status != http.StatusOK || !strings.Contains(body, frame) && !strings.Contains(body, plain) {
				t.Errorf("/ui/%s (%d) has no %s", page, status, frame)
			}
		}
	}
	if status, _ := fetch(t, "http://"+address+"/ui/top", "evil.example"); status != http.StatusForbidden {
		t.Errorf("status %d for a request with another host name", status)
	}
	if status, _ := fetch(t, "http://"+address+"/ui/absent", "localhost:1"); status != http.StatusNotFound {
		t.Errorf("status %d for a page that does not exist", status)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("Ctrl-C: %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("pprof --http still runs 10 s after Ctrl-C")
	}
	if files, err := os.ReadDir("."); err != nil || len(files) != 1 {
		t.Errorf("files next to the recording: %v %v", files, err)
	}
}

func TestFoldedAndProfileCommandLines(t *testing.T) {
	testclass.Unit(t)
	t.Chdir(t.TempDir())
	deepRecording(t, "run.parquet")
	for line, want := range map[string]struct {
		code           int
		stdout, stderr string // substrings of the output
	}{
		"analyze folded --type launches run.parquet": {0, "step (train.py:88);at::add(at::Tensor " +
			"const&);cuLaunchKernel;[gpu] void gemm<float>(int) 100\n", "1 stacks -> standard output"},
		"analyze folded --type launches --sample-type launch_cpu --kernel gemm " +
			"run.parquet": {0, "[gpu] void gemm<float>(int) 100000\n", ""},
		"analyze folded --type api-time -o a.folded run.parquet": {0, "", "1 stacks -> a.folded"},
		"analyze folded --type launches --sample-type calls " +
			"run.parquet": {2, "", "--sample-type calls: the values of --type launches are launches, launch_cpu"},
		"analyze folded --root-by moon run.parquet": {2, "", "--root-by moon: must be one of thread, stream, device, pid"},
		"analyze folded --explain":                  {0, "wait_time", ""},
		"analyze pprof --type launches run.parquet": {0, "", "1 samples -> " +
			"run.launches.pb.gz"},
		"analyze pprof --type launches --at peak run.parquet": {2, "", "--at peak needs " +
			"--type heap or allocs"},
		"analyze pprof --at yesterday run.parquet": {2, "", "--at: read time"},
		"analyze pprof --at peak -o b.pb.gz run.parquet": {0, "", "0 samples -> " +
			"b.pb.gz"},
		"analyze pprof --http nowhere run.parquet": {2, "", "--http nowhere: must be HOST:PORT"},
		"analyze pprof --http :0 -o c.pb.gz run.parquet": {2, "", "--http writes " +
			"no file: remove -o c.pb.gz"},
		"analyze pprof --http :0 run.parquet": {1, "", "the heap profile is empty: no recorded call matches"},
		"analyze pprof --http 203.0.113.1:80 --type launches " +
			"run.parquet": {1, "", "--http 203.0.113.1:80: listen"},
	} {
		stdout, stderr, code := runHere(t, strings.Fields(line)...)
		if code != want.code || !strings.Contains(stdout, want.stdout) || !strings.Contains(stderr, want.stderr) {
			t.Errorf("gpurec %s: exit %d\n%s\n%s", line, code, stdout, stderr)
		}
	}
}
