package analyze

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gpurec/gpurec/analyze/analyzetest/rankjob"
	"github.com/gpurec/gpurec/internal/testclass"
)

// TestRankScale measures "gpurec analyze hang" on many recordings of one job: GPUREC_RANK_SCALE of about 100 MB each,
// and 1,024 small ones. It writes them into GPUREC_RANK_SCALE_DIR and deletes them.
func TestRankScale(t *testing.T) {
	testclass.Lab(t, "rank-scale")
	large, err := strconv.Atoi(os.Getenv("GPUREC_RANK_SCALE"))
	if err != nil {
		t.Skip("set GPUREC_RANK_SCALE to a number of large recordings, as make rank-scale does")
	}
	for _, test := range []struct {
		name  string
		scale rankjob.Scale
		limit time.Duration
	}{
		{"summaries", rankjob.Scale{
			Ranks: 1024, RanksPerHost: 8, Steps: 20, LaunchesPerStep: 2, Missing: 517,
		}, time.Minute},
		{"large", rankjob.Scale{
			Ranks: large, RanksPerHost: 8, Steps: 53_000, LaunchesPerStep: 300, Missing: large / 2,
		}, time.Minute},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.scale.Ranks < 2 {
				t.Skip("no large recordings")
			}
			dir, err := os.MkdirTemp(os.Getenv("GPUREC_RANK_SCALE_DIR"), "rank-scale-")
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(dir)
			bytes := writeScale(t, dir, &test.scale)
			measureHang(t, dir, bytes, &test.scale, test.limit)
		})
	}
}

// writeScale writes the recordings of a job on all processors, and returns the size of all.
func writeScale(t *testing.T, dir string, s *rankjob.Scale) (bytes int64) {
	var next atomic.Int64
	t.Run("write", func(t *testing.T) {
		for worker := range runtime.GOMAXPROCS(0) {
			t.Run(strconv.Itoa(worker), func(t *testing.T) {
				t.Parallel()
				for rank := next.Add(1) - 1; rank < int64(s.Ranks); rank = next.Add(1) - 1 {
					s.Write(t, filepath.Join(dir, fmt.Sprintf("rank%04d.parquet", rank)), int(rank))
				}
			})
		}
	})
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			bytes += info.Size()
		}
	}
	return bytes
}

// measureHang runs the report in a process of its own, and checks verdict, time and memory.
func measureHang(t *testing.T, dir string, bytes int64, s *rankjob.Scale, limit time.Duration) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("gpurec", "analyze", "hang", dir)
	cmd.Path, cmd.Err = exe, nil
	began := time.Now()
	out, err := cmd.CombinedOutput()
	took := time.Since(began)
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	usage := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	t.Logf("%d recordings, %.1f MB: %.1f s, CPU %.1f s, %d MiB\n%s", s.Ranks, float64(bytes)/1e6, took.Seconds(),
		(cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds(), usage.Maxrss>>10, out)
	if want := fmt.Sprintf("waited for rank %d", s.Missing); !strings.Contains(string(out), want) {
		t.Errorf("no %q", want)
	}
	if took > limit || usage.Maxrss > 1<<20 {
		t.Errorf("took %v and %d KiB", took, usage.Maxrss)
	}
}
