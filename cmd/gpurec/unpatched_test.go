//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

const (
	unpatched      = "no Python frames: gpurec was built without the patches of its unwinder"
	needsPrivilege = "this build of gpurec needs CAP_SYS_RESOURCE to unwind"
)

// TestPythonFramesNeedThePatches records a Python program with a patched and with unpatched builds
// of the unwinder. An unpatched build records no Python frames. It prints the reason when a
// recording starts, stores it in the recording, and prints it in "gpurec check".
func TestPythonFramesNeedThePatches(t *testing.T) {
	testclass.Root(t)
	needVerdicts(t)
	patched, err := exec.LookPath("gpurec") // this test binary: testscript.Main adds it to PATH
	must(t, err)
	t.Run("patched", func(t *testing.T) {
		frames, messages := pythonFrames(t, patched)
		if frames == 0 || strings.Contains(messages, "stacks are") || strings.Contains(messages, "stacks will") {
			t.Errorf("%d Python frames; messages: %s", frames, messages)
		}
	})
	t.Run("without the marker", func(t *testing.T) { // this build has the unwinding code of a patched build
		expectUnpatched(t, buildWithoutMarker(t), unpatched)
	})
	t.Run("without the workspace", func(t *testing.T) {
		want := needsPrivilege
		if readStatus("/proc/self/status")["CapEff"]&(1<<unix.CAP_SYS_RESOURCE) != 0 {
			want = unpatched
		}
		expectUnpatched(t, buildGpurec(t, "off"), want)
	})
}

// buildGpurec builds gpurec with GOWORK set to workspace, which may be "off".
func buildGpurec(t *testing.T, workspace string, flags ...string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "gpurec")
	cmd := exec.Command("go", append(append([]string{"build", "-o", path}, flags...), ".")...)
	cmd.Env = append(os.Environ(), "GOWORK="+workspace)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

// buildWithoutMarker builds gpurec with all unwinder patches except the one that marks a patched
// copy.
func buildWithoutMarker(t *testing.T) (path string) {
	t.Helper()
	build, err := filepath.Abs("../../build")
	must(t, err)
	marker := filepath.Join(build, "workspace/ebpf-profiler/tracer/gpurec.go")
	if _, err := os.Stat(marker); err != nil {
		t.Fatalf("%v: make workspace", err)
	}
	overlay := filepath.Join(t.TempDir(), "overlay.json")
	must(t, os.WriteFile(overlay, fmt.Appendf(nil, `{"Replace": {%q: ""}}`, marker), 0o600))
	return buildGpurec(t, filepath.Join(build, "go.work"), "-overlay", overlay)
}

// expectUnpatched records with an unpatched build. The build must print and store the reason for
// missing Python frames.
func expectUnpatched(t *testing.T, gpurec, reason string) {
	t.Helper()
	frames, messages := pythonFrames(t, gpurec)
	if frames != 0 {
		t.Errorf("%d Python frames", frames)
	}
	for _, want := range []string{
		"warning: stacks will miss frames",
		"note of the recording: stacks are not complete: " + reason,
	} {
		if !strings.Contains(messages, want) {
			t.Errorf("no message %q: %s", want, messages)
		}
	}
	if strings.Count(messages, reason) < 2 {
		t.Errorf("the warning lacks the reason %q: %s", reason, messages)
	}
	out, err := exec.Command(gpurec, "check").Output()
	must(t, err)
	if !strings.Contains(string(out), reason) {
		t.Errorf("gpurec check lacks the reason %q: %s", reason, out)
	}
}

// pythonFrames records a Python program. It returns the number of Python frames in all stacks, the
// messages of the recorder and the notes in the recording.
func pythonFrames(t *testing.T, gpurec string) (frames int, messages string) {
	t.Helper()
	dir, env := simEnvironment(t)
	path := filepath.Join(dir, "r.parquet")
	cmd := exec.Command(gpurec, "record", "--max-overhead", "off", "--nvml-interval", "0", "-o", path, "--",
		"python3", "-B", "../../examples/simtorch/leak_hook.py", "--steps", "100", "--step-ms", "5")
	cmd.Env = env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	messages = string(out)
	rec, err := format.Open(path)
	must(t, err)
	defer rec.Close()
	must(t, rec.Rows(func(r *format.Row) error {
		if r.Kind == format.KindNote {
			messages += "note of the recording: " + r.Message + "\n"
		}
		for i := range r.Frames {
			if r.Frames[i].Type == "python" {
				frames++
			}
		}
		return nil
	}, format.ClassFact, format.ClassStack))
	return frames, messages
}
