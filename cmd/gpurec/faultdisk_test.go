//go:build linux

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// smallDisk mounts a file system from an image file and returns its folder. fsfreeze can freeze
// this file system without other effects.
func smallDisk(t *testing.T) string {
	t.Helper()
	image, dir := filepath.Join(t.TempDir(), "image"), t.TempDir()
	must(t, os.WriteFile(image, nil, 0o600))
	must(t, os.Truncate(image, 256<<20))
	for _, command := range [][]string{
		{"mkfs.ext4", "-q", image},
		{"mount", "-o", "loop", image, dir},
		{"fsfreeze", "--help"},
	} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Skipf("cannot mount a file system to freeze: %s: %v, %s", command[0], err, out)
		}
	}
	t.Cleanup(func() {
		_ = exec.Command("fsfreeze", "-u", dir).Run() // if the test ended while the file system was frozen
		_ = syscall.Unmount(dir, 0)
	})
	return dir
}

// TestFaultDiskFreezes freezes the disk of the recording for longer than the ring buffer can hold
// events. The recorder must lose no call, and the file must be complete.
func TestFaultDiskFreezes(t *testing.T) {
	testclass.Root(t)
	seconds, rate := faultTimes(t, 3, 30), 20_000
	if seconds > 3 {
		rate = 60_000
	}
	v := startVictim(t, rate)
	output := filepath.Join(smallDisk(t), "r.parquet")
	recorder := startRecorder(t, v, output, "--segment-interval", "1s")
	waitForSegment(t, output, format.ClassCall)
	must(t, exec.Command("fsfreeze", "-f", filepath.Dir(output)).Run())
	waitForCalls(t, v.ledger, seconds*rate)
	frozen := len(segmentsOf(output, format.ClassCall))
	must(t, exec.Command("fsfreeze", "-u", filepath.Dir(output)).Run())
	waitFor(
		t,
		"the recorder writes segments again",
		func() bool { return len(segmentsOf(output, format.ClassCall)) > frozen },
	)
	must(t, recorder.Process.Signal(os.Interrupt))
	must(t, recorder.Wait())
	rec, err := format.Open(output)
	must(t, err)
	defer rec.Close()
	rows := int64(0)
	must(t, rec.Rows(func(*format.Row) error { rows++; return nil }, format.ClassMemory, format.ClassCall))
	total := rec.Meta.Totals()
	if rec.Meta.Complete != format.CompleteYes || total.Lost != 0 || total.Recorded != rows ||
		rows < int64(seconds)*10_000 {
		t.Errorf("%d calls in the file, call counters %+v, complete: %s", rows, total, rec.Meta.Complete)
	}
}
