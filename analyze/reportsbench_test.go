package analyze_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// benchReports are the arguments of the measured reports. FILE is the recording, OUTPUT a path to
// write to.
var benchReports = []string{
	"summary", "rules", "leaks", "memory", "frag", "oom", "stacks", "errors", "hang", "gpu", "xid", "allocator",
	"api", "api --group-by site", "kernels", "copies", "sync", "gaps", "diff FILE",
	"report -o OUTPUT --force", "pprof -o OUTPUT --force", "perfetto -o OUTPUT --force", "torch-snapshot -o OUTPUT " +
		"--force",
}

// gpurecBinary builds gpurec once and returns the path of the program.
var gpurecBinary = sync.OnceValues(func() (string, error) {
	path, err := filepath.Abs(filepath.Join("..", "build", "bench", "gpurec"))
	if err != nil {
		return "", err
	}
	if out, err := exec.Command("go", "build", "-o", path, "../cmd/gpurec").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return path, nil
})

// benchEvents returns the sizes of recordings to measure, in events: those in GPUREC_BENCH_EVENTS,
// by default small ones.
func benchEvents(b *testing.B) []int {
	list := os.Getenv("GPUREC_BENCH_EVENTS")
	if list == "" {
		return []int{100_000}
	}
	var events []int
	for _, text := range strings.Split(list, ",") {
		n, err := strconv.ParseFloat(text, 64) // accept 1e7 as well as 10000000
		if err != nil {
			b.Fatalf("GPUREC_BENCH_EVENTS: %v", err)
		}
		events = append(events, int(n))
	}
	return events
}

// BenchmarkReports runs `gpurec analyze` on the recording of a training job. It measures wall time,
// CPU time and the largest resident set of each process.
func BenchmarkReports(b *testing.B) {
	gpurec, err := gpurecBinary()
	if err != nil {
		b.Fatal(err)
	}
	for _, n := range benchEvents(b) {
		path := benchTraining(b, n)
		for _, report := range append(benchReports, "words summary", "words report -o OUTPUT --force", "words operations", "words gaps", "words steps",
			"host summary", "host gaps", "host steps", "host rules") {
			path := path
			report, words := strings.CutPrefix(report, "words ")
			if words {
				path = benchTrainingWithWords(b, n)
			}
			report, host := strings.CutPrefix(report, "host ")
			if host {
				path = benchTrainingWithHost(b, n)
			}
			b.Run(
				fmt.Sprintf(
					"%.0e/%s",
					float64(n),
					strings.ReplaceAll(strings.Fields(report)[0]+byName(report), " ", ""),
				),
				func(b *testing.B) {
					words := strings.NewReplacer("FILE", path, "OUTPUT", filepath.Join(b.TempDir(), "output")).
						Replace(report)
					args := append([]string{"analyze"}, strings.Fields(words)...)
					var cpu, peak float64
					for b.Loop() {
						cmd := exec.Command(gpurec, append(args, path)...)
						out, err := cmd.CombinedOutput()
						var exit *exec.ExitError
						if err != nil && !errors.As(err, &exit) {
							b.Fatal(err)
						}
						if err != nil {
							b.Fatalf("gpurec %v: %v: %s", args, err, out)
						}
						cpu += (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
						peak = max(peak, peakMiB(cmd.ProcessState))
					}
					b.ReportMetric(0, "ns/op")
					b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "wall-s")
					b.ReportMetric(cpu/float64(b.N), "cpu-s")
					if peak > peakRSS() {
						b.ReportMetric(peak, "peak-MiB")
					}
				},
			)
		}
	}
}

// byName returns a benchmark name that is unique for reports measured with several options.
func byName(report string) string {
	if _, by, ok := strings.Cut(report, "--group-by "); ok {
		return "-" + by
	}
	return ""
}

// peakMiB returns the largest resident set of a process that ended, in MiB. Linux includes the
// memory of the parent before exec. A value not above that of this process, for example after other
// benchmarks, is meaningless.
func peakMiB(p *os.ProcessState) float64 {
	usage, ok := p.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0
	}
	return float64(usage.Maxrss) / 1024
}
