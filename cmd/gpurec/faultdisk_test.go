//go:build linux

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/gpurec/gpurec/format"
)

// smallDisk mounts a file system of its own on a file, which can be frozen.
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
			t.Skipf("no disk that can be frozen: %s: %v, %s", command[0], err, out)
		}
	}
	t.Cleanup(func() {
		_ = exec.Command("fsfreeze", "-u", dir).Run() // if the test ended in between
		_ = syscall.Unmount(dir, 0)
	})
	return dir
}

// TestFaultDiskStandsStill freezes the disk while it is recorded to, for longer than buffers of
// events last: nothing is lost, and the file is whole.
func TestFaultDiskStandsStill(t *testing.T) {
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
	waitFor(t, "segments go to disk again", func() bool { return len(segmentsOf(output, format.ClassCall)) > frozen })
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
		t.Errorf("%d calls in the file, books %+v, complete: %s", rows, total, rec.Meta.Complete)
	}
}
