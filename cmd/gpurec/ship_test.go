//go:build linux

package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gpurec/gpurec/agent"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// startShip starts gpurec ship, and returns the URL that it serves.
func startShip(t *testing.T, socket string) string {
	t.Helper()
	gpurec, err := exec.LookPath("gpurec") // this test binary: testscript.Main adds it to PATH
	must(t, err)
	cmd := exec.Command(gpurec, "ship", "--socket", socket, "--listen", "127.0.0.1:0")
	stderr, err := cmd.StderrPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line, err := bufio.NewReader(stderr).ReadString('\n')
	must(t, err)
	at := strings.Index(line, "http://")
	if at < 0 {
		t.Fatalf("no address in %q", line)
	}
	return strings.TrimSpace(line[at:])
}

// scrapeSums returns the sums of all series of each metric.
func scrapeSums(t *testing.T, url string) map[string]int64 {
	t.Helper()
	response, err := http.Get(url)
	must(t, err)
	defer response.Body.Close()
	sums := make(map[string]int64)
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		line := lines.Text()
		end := strings.LastIndexByte(line, ' ')
		if line[0] == '#' || end < 0 {
			continue
		}
		var value float64
		_, err := fmt.Sscan(line[end:], &value)
		must(t, err)
		name, _, _ := strings.Cut(line[:end], "{")
		sums[name] += int64(value)
	}
	return sums
}

// recordedSums returns the sums that metrics must have, from the rows of a recording.
func recordedSums(t *testing.T, path string) map[string]int64 {
	t.Helper()
	rec, err := format.Open(path)
	must(t, err)
	defer rec.Close()
	sums := make(map[string]int64)
	must(t, rec.Rows(func(row *format.Row) error {
		if row.Flags&format.FlagOpen != 0 { // the kill interrupted it: its row is written when the agent ends
			return nil
		}
		sums["gpurec_process_calls_total"]++
		switch {
		case row.Result != 0:
			sums["gpurec_errors_total"]++
		case row.Kind == format.KindLaunch:
			sums["gpu_cuda_kernel_launch_calls_total"]++
		case row.Kind == format.KindAlloc:
			sums["gpu_cuda_memory_allocations_bytes_total"] += row.Bytes
		case row.Kind == format.KindMemcpy:
			sums["gpu_cuda_memory_copies_bytes_total"] += row.Bytes
		case row.Kind == format.KindSync:
			sums["gpurec_sync_calls_total"]++
		}
		return nil
	}, format.ClassMemory, format.ClassCall))
	return sums
}

// TestShipEqualsTheRecording compares the numbers of a scrape with the rows of the ring, and then with no agent.
func TestShipEqualsTheRecording(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	t.Parallel()
	a := newTestAgent(t)
	a.configure("ring: {time: 1m", "ring: {time: 1h") // no row may leave the ring
	ring := a.start().Output
	url := startShip(t, a.socket())
	waitFor(t, "launches are counted", func() bool {
		return scrapeSums(t, url)["gpu_cuda_kernel_launch_calls_total"] > 100
	})
	must(t, a.program.Process.Kill())
	waitFor(t, "the program has ended", func() bool {
		m, err := agent.ReadMetrics(context.Background(), a.socket())
		must(t, err)
		return len(m.Processes) == 1 && m.Processes[0].Pid == 0
	})
	got := scrapeSums(t, url)
	must(t, a.cmd.Process.Signal(syscall.SIGTERM))
	must(t, a.cmd.Wait())
	if sums := scrapeSums(t, url); len(sums) != 1 || sums["gpurec_agent_up"] != 0 {
		t.Errorf("without an agent: %v", sums)
	}
	path := filepath.Join(t.TempDir(), "ring.parquet")
	if _, stderr, code := runGpurec(t, "recover", ring, "-o", path); code != 0 {
		t.Fatalf("recover: %d\n%s", code, stderr)
	}
	for name, want := range recordedSums(t, path) {
		if got[name] != want {
			t.Errorf("%s: %d, recorded are %d", name, got[name], want)
		}
	}
	if got["gpurec_memory_live_bytes"] != 0 || got["gpu_cuda_kernel_launch_calls_total"] == 0 {
		t.Errorf(
			"%d live bytes, %d launches",
			got["gpurec_memory_live_bytes"],
			got["gpu_cuda_kernel_launch_calls_total"],
		)
	}
}
