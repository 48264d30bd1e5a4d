package analyze

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// writeRank writes the recording of a rank, which holds some MiB, in a folder. rank -1 is no rank.
func writeRank(t *testing.T, dir string, rank int, job string, mib int64) string {
	recording := analyzetest.NewTestRecording(t)
	recording.Path = filepath.Join(dir, fmt.Sprintf("rank%d-%s.parquet", rank, job))
	recording.Meta.StartNs += int64(rank)
	pid := int32(100 + rank)
	recording.AddRow(
		format.Row{Kind: format.KindProcess, Name: "train", Pid: pid, StartNs: analyzetest.Epoch, Device: -1},
	)
	if rank >= 0 {
		recording.AddIdentity(pid, analyzetest.RankIdentity(rank, 4, job), nil)
	}
	r := recording.AddAlloc(analyzetest.Second, 1000, 0x1000, mib*analyzetest.Mib)
	r.Pid, r.Tid = pid, pid
	recording.WriteAndOpen()
	return recording.Path
}

// TestSeveralRecordings checks that a report on several recordings has a row for equal ranks, and one
// for the rank that differs.
func TestSeveralRecordings(t *testing.T) {
	testclass.Unit(t)
	dir := t.TempDir()
	for rank := range 4 {
		writeRank(t, dir, rank, "llama", []int64{100, 100, 300, 100}[rank])
	}
	for _, args := range [][]string{
		{dir},
		{filepath.Join(dir, "rank*.parquet")},
		{filepath.Join(dir, "rank0-llama.parquet"), filepath.Join(dir, "rank[123]*")},
	} {
		out, stderr, code := runHere(t, append([]string{"analyze", "memory", "--format", "csv"}, args...)...)
		if code != 0 || strings.Count(out, "\n") != 5 || !strings.Contains(out, "\n2,314572800,") {
			t.Errorf("%v: %d, %s%s", args, code, out, stderr)
		}
		out, _, _ = runHere(t, append([]string{"analyze", "memory"}, args...)...)
		if !strings.Contains(out, "\n2 ") || !strings.Contains(out, "\n0-1, 3 ") {
			t.Error(out)
		}
	}
	out, stderr, code := runHere(t, "analyze", "memory", "--rank", "1,2", "--fail-on", "held_bytes>200MiB", dir)
	if code != 3 || !strings.Contains(stderr, "failed on rank 2: held_bytes>200MiB") || strings.Contains(out, "0-1") {
		t.Error(code, out, stderr)
	}
	for _, name := range []string{"summary", "leaks", "errors", "xid", "kernels", "steps", "gaps"} {
		if out, stderr, code := runHere(t, "analyze", name, dir); code != 0 || !strings.Contains(out, "RANK") {
			t.Errorf("%s: %d, %s%s", name, code, out, stderr)
		}
	}
}

// TestErrorsAboutSeveralRecordings checks that errors about the recordings of a job name a file, and
// say what to do.
func TestErrorsAboutSeveralRecordings(t *testing.T) {
	testclass.Unit(t)
	dir := t.TempDir()
	a, b := writeRank(t, dir, 0, "llama", 1), writeRank(t, dir, 1, "llama", 1)
	other, none := writeRank(t, dir, 2, "bert", 1), writeRank(t, dir, -1, "none", 1)
	text, empty := filepath.Join(dir, "text"), filepath.Join(dir, "empty")
	if err := os.WriteFile(text, []byte("this is text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(empty, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{a, text}, "error: DIR/text is not a Parquet file\n"},
		{[]string{a, dir + "/absent"}, "error: DIR/absent does not exist\n"},
		{[]string{a, a}, "error: DIR/rank0-llama.parquet is given twice\n"},
		{[]string{a, other}, "is of job bert\ngpurec: hint: gpurec analyze memory --job llama …\n"},
		{[]string{none, none}, "is given twice"},
		{[]string{empty}, "error: DIR/empty has no recording: no file in it is named *.parquet\n"},
		{[]string{dir + "/x*"}, "error: DIR/x* matches no file\n"},
		{[]string{a, b, "--rank", "7"}, "error: no rank passes the filter; the job has the ranks 0-1\n"},
		{[]string{a, b, "--job", "t5"}, "no process of job t5 with a rank: neither its environment nor NCCL says one\n"},
		{[]string{a, none}, "warning: 1 recording has no process with a rank: DIR/rank-1-none.parquet\n"},
	} {
		_, stderr, code := runHere(t, append([]string{"analyze", "memory"}, test.args...)...)
		got := strings.ReplaceAll(stderr, dir, "DIR")
		if !strings.Contains(got, test.want) || (code == 0) != strings.HasPrefix(test.want, "warning") {
			t.Errorf("%v: %d, %s", test.args, code, got)
		}
	}
	_, stderr, code := runHere(t, "analyze", "hang", "--rank", "1", a, b)
	if code != 2 || !strings.Contains(stderr, "need one recording: with several, hang compares all ranks") {
		t.Error(code, stderr)
	}
}
