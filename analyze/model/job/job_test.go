package job_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/model/job"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// recording is a recording of processes in a folder.
type recording struct {
	*analyzetest.TestRecording
}

// newRecording returns a recording NAME.parquet of a host.
func newRecording(t *testing.T, folder, name, host string) *recording {
	r := &recording{analyzetest.NewTestRecording(t)}
	r.Path = filepath.Join(folder, name+".parquet")
	r.Meta.Host, r.Meta.BootID = host, "boot of "+host
	return r
}

// process adds a process. rank -1 gives it no rank.
func (r *recording) process(pid int32, rank, of int, name string) *recording {
	r.AddRow(format.Row{Kind: format.KindProcess, Name: "train", Pid: pid, StartNs: analyzetest.Epoch, Device: -1})
	if rank >= 0 {
		r.AddIdentity(pid, analyzetest.RankIdentity(rank, of, name), nil)
	}
	return r
}

// communicator adds a communicator of a process, made at a second of the recording.
func (r *recording) communicator(second int64, pid int32, id int64, rank, size int32) *recording {
	r.AddCommunicator(second*analyzetest.Second, analyzetest.CommunicatorRow{
		ID: id, Ptr: 0x1000 + 16*id + int64(rank), Pid: pid, Rank: rank, Size: size,
	})
	return r
}

// write writes recordings and returns their paths.
func write(list ...*recording) (paths []string) {
	for _, r := range list {
		r.WriteAndOpen()
		paths = append(paths, r.Path)
	}
	return paths
}

// describe returns the members as "LABEL=RANK/SIZE SOURCE HOST PID".
func describe(j *job.Job) (list []string) {
	for _, m := range j.Members {
		list = append(list, fmt.Sprintf("%s=%d/%d %s %s %d", m.Label, m.Rank, m.WorldSize, m.RankSource,
			j.Hosts[m.Host].Name, m.Pid))
	}
	return list
}

func TestRanksOfTheEnvironment(t *testing.T) {
	testclass.Unit(t)
	dir := t.TempDir()
	paths := write(
		newRecording(t, dir, "b", "node2").process(12, 2, 4, "llama").process(13, 3, 4, "llama").process(99, -1, 0, ""),
		newRecording(t, dir, "a0", "node1").process(10, 0, 4, "llama"),
		newRecording(t, dir, "a1", "node1").process(11, 1, 4, "llama"),
	)
	done := 0
	j, err := job.Open(paths, job.Options{Progress: func(int, int) { done++ }})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"0=0/4 env RANK node1 10", "1=1/4 env RANK node1 11", "2=2/4 env RANK node2 12", "3=3/4 env RANK node2 13",
	}
	if got := describe(j); !slices.Equal(got, want) || len(j.Hosts) != 2 || done != 3 || j.WithoutRank != nil {
		t.Errorf("%q, hosts %v, %d progress, %v", got, j.Hosts, done, j.WithoutRank)
	}
}

// TestRanksOfNCCL checks that the largest communicator gives the ranks; of several, the one that was
// made first.
func TestRanksOfNCCL(t *testing.T) {
	testclass.Unit(t)
	dir := t.TempDir()
	var list []*recording
	for i := range int32(4) {
		r := newRecording(t, dir, fmt.Sprint(i), fmt.Sprintf("node%d", i/2)).process(50, -1, 0, "")
		r.communicator(1, 50, 7, i%2, 2) // a pair, made first
		r.communicator(2, 50, 8, i, 4)   // all ranks
		r.communicator(3, 50, 9, 3-i, 4) // all ranks in another order, made later
		r.process(60+i, -1, 0, "")       // a helper without NCCL
		list = append(list, r)
	}
	j, err := job.Open(write(list...), job.Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"0=0/4 nccl node0 50", "1=1/4 nccl node0 50", "2=2/4 nccl node1 50", "3=3/4 nccl node1 50"}
	if got := describe(j); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// TestAmbiguousRanks checks that a process that NCCL knows but whose rank is ambiguous is a member
// without a rank.
func TestAmbiguousRanks(t *testing.T) {
	testclass.Unit(t)
	dir := t.TempDir()
	r := newRecording(t, dir, "a", "node1")
	r.process(10, -1, 0, "").communicator(1, 10, 8, 0, 4).communicator(1, 10, 8, 1, 4) // two GPUs in one process
	r.process(11, -1, 0, "").communicator(1, 11, 8, 2, 4)
	r.process(12, -1, 0, "").communicator(1, 12, 5, 0, 2) // not in the communicator of the job
	second := newRecording(t, dir, "b", "node2")
	second.process(12, -1, 0, "").communicator(1, 12, 5, 1, 2)
	second.process(13, 2, 4, "llama")
	j, err := job.Open(write(r, second), job.Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"2 (pid 11)=2/4 nccl node1 11", "2 (pid 13)=2/4 env RANK node2 13", "pid 10=-1/0  node1 10",
		"pid 12 on node1=-1/0  node1 12", "pid 12 on node2=-1/0  node2 12",
	}
	if got := describe(j); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// TestClocksOfOneHost checks that recordings of one host have one clock, whatever CLOCK_REALTIME was
// at their starts.
func TestClocksOfOneHost(t *testing.T) {
	testclass.Unit(t)
	dir := t.TempDir()
	first := newRecording(t, dir, "a", "node1").process(10, 0, 2, "llama")
	second := newRecording(t, dir, "b", "node1").process(11, 1, 2, "llama")
	second.Meta.ClockOffsetNs += 5 * analyzetest.Ms
	j, err := job.Open(write(first, second), job.Options{})
	if err != nil || len(j.Hosts) != 1 {
		t.Fatal(j, err)
	}
	if a, b := j.Recordings[0].ShiftNs, j.Recordings[1].ShiftNs; a != 0 || b != 5*analyzetest.Ms {
		t.Error(a, b)
	}
}

func TestErrorsOfOpen(t *testing.T) {
	testclass.Unit(t)
	dir := t.TempDir()
	text := filepath.Join(dir, "text.parquet")
	if err := os.WriteFile(text, []byte("this is text"), 0o600); err != nil {
		t.Fatal(err)
	}
	a := write(newRecording(t, dir, "a", "node1").process(10, 0, 2, "llama"))[0]
	link, copied := filepath.Join(dir, "link.parquet"), filepath.Join(dir, "copy.parquet")
	content, err := os.ReadFile(a)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Symlink(a, link), os.WriteFile(copied, content, 0o600)); err != nil {
		t.Fatal(err)
	}
	other := newRecording(t, dir, "other", "node1").process(20, 0, 2, "bert")
	other.Meta.StartNs++
	none := newRecording(t, dir, "none", "node1").process(30, -1, 0, "")
	none.Meta.StartNs += 2
	rest := write(other, none, newRecording(t, dir, "both", "node1").process(1, 0, 1, "x").process(2, 0, 1, "y"))
	for _, test := range []struct {
		paths []string
		want  string
	}{
		{[]string{a, text}, "open recording DIR/text.parquet: is not a Parquet file"},
		{[]string{a, dir + "/absent.parquet"}, "stat DIR/absent.parquet: no such file or directory"},
		{[]string{a, a}, "DIR/a.parquet is given twice"},
		{[]string{a, link}, "DIR/link.parquet is the same recording as DIR/a.parquet"},
		{[]string{a, copied}, "DIR/copy.parquet is the same recording as DIR/a.parquet"},
		{[]string{a, rest[0]}, "DIR/a.parquet is of job llama, but DIR/other.parquet is of job bert"},
		{[]string{rest[2]}, "DIR/both.parquet has ranks of two jobs, x and y"},
		{[]string{rest[1]}, "DIR/none.parquet has no process with a rank: neither its environment nor NCCL says one"},
	} {
		_, err := job.Open(test.paths, job.Options{})
		if err == nil || strings.ReplaceAll(err.Error(), dir, "DIR") != test.want {
			t.Errorf("%v: %v, want %s", test.paths, err, test.want)
		}
	}
	j, err := job.Open([]string{a, rest[0], rest[1]}, job.Options{Jobs: []string{"bert"}})
	if err != nil || !slices.Equal(j.WithoutRank, []int{0, 2}) || len(j.Members) != 1 {
		t.Error(j, err)
	}
	_, err = job.Open([]string{a, rest[0]}, job.Options{Jobs: []string{"t5", "gpt"}})
	want := "DIR/a.parquet and 1 more have no process of job t5 and gpt with a rank: neither its " +
		"environment nor NCCL says one"
	if err == nil || strings.ReplaceAll(err.Error(), dir, "DIR") != want {
		t.Error(err)
	}
}

func TestExpand(t *testing.T) {
	testclass.Unit(t)
	dir := t.TempDir()
	for _, name := range []string{
		"rank10.parquet", "rank2.parquet", "notes.txt", "sub/x.parquet", "rank2.parquet.d/", "killed.parquet.d/", "empty/",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "/") {
			if err := os.MkdirAll(path, 0o700); err != nil {
				t.Fatal(err)
			}
		} else if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for argument, want := range map[string]string{
		"":                "DIR/killed.parquet.d DIR/rank10.parquet DIR/rank2.parquet",
		"rank*.parquet":   "DIR/rank10.parquet DIR/rank2.parquet",
		"rank2.parquet":   "DIR/rank2.parquet",
		"rank2.parquet.d": "DIR/rank2.parquet.d",
		"absent.parquet":  "DIR/absent.parquet",
		"empty":           "error: DIR/empty has no recording: no file in it is named *.parquet",
		"gone*.parquet":   "error: DIR/gone*.parquet matches no file",
		"[.parquet":       "error: read pattern DIR/[.parquet: syntax error in pattern",
	} {
		list, err := job.Expand([]string{dir + "/" + argument})
		got := strings.Join(list, " ")
		if err != nil {
			got = "error: " + err.Error()
		}
		if got = strings.ReplaceAll(got, dir, "DIR"); got != want {
			t.Errorf("%q: %q, want %q", argument, got, want)
		}
	}
}
