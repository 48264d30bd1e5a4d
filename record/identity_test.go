//go:build linux

package record

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report/leaks"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// startRanks starts two ranks of a job. Their environment has secrets, which must not be recorded.
func startRanks(t *testing.T) (ranks [2]*simProgram) {
	t.Helper()
	for rank := range ranks {
		ranks[rank] = startSim(t, []string{
			fmt.Sprint(
				"RANK=",
				rank,
			),
			"WORLD_SIZE=2",
			fmt.Sprint("LOCAL_RANK=", rank),
			"LOCAL_WORLD_SIZE=2",
			"GROUP_RANK=0",
			"TORCHELASTIC_RUN_ID=demo",
			"TORCHELASTIC_RESTART_COUNT=3",
			"MASTER_ADDR=127.0.0.1",
			"MASTER_PORT=29500",
			"AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI",
			"TRAINING_TOKEN_hf_abc=1",
			"RANK_SECRET=hunter2hunter2",
		}, "storm", "--calls", fmt.Sprint(3000*(rank+1)), "--threads", "1", "--seed", fmt.Sprint(rank+1), "--wait")
		ranks[rank].expect("ready")
	}
	return ranks
}

func TestRanksAreRecorded(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	needKernel(t)
	ranks := startRanks(t)
	result := runWhile(t, start(t, testOptions(t, ranks[0].pid(), ranks[1].pid())), func() {
		for _, p := range ranks {
			p.step()
			p.expect("done")
		}
	})
	for _, p := range ranks {
		p.finish()
	}
	checkIdentities(t, result.Output, ranks)
	checkSecrets(t, result.Output)

	rec, err := format.Open(result.Output)
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	tl, err := timeline.Open(rec)
	if err != nil {
		t.Fatal(err)
	}
	allocs := func(f query.Filter) float64 {
		r, err := leaks.Run(tl, query.Options{Filter: f})
		if err != nil {
			t.Fatal(err)
		}
		n, _, _ := r.FindNumber("allocs")
		return n
	}
	var sum float64
	for rank, p := range ranks {
		var f query.Filter
		tl.RestrictProcesses(&f, timeline.ProcessFilter{Ranks: []int32{int32(rank)}})
		n := allocs(f)
		if want := allocs(query.Filter{Pids: []int32{int32(p.pid())}}); n != want || n == 0 {
			t.Errorf("rank %d: %v allocations, want %v", rank, n, want)
		}
		sum += n
	}
	if all := allocs(query.Filter{}); sum != all {
		t.Errorf("the ranks made %v allocations, all processes %v", sum, all)
	}
	byRank, err := leaks.Run(tl, query.Options{GroupBy: "rank"})
	if err != nil {
		t.Fatal(err)
	}
	var labels []string
	for _, row := range byRank.Tables[0].Rows {
		labels = append(labels, row.Cells[len(row.Cells)-1].(string))
	}
	slices.Sort(labels)
	if labels = slices.Compact(labels); !slices.Equal(labels, []string{"0", "1"}) {
		t.Errorf("memory by rank: %v", labels)
	}
}

// checkIdentities checks the "identity" member in the rows of processes.
func checkIdentities(t *testing.T, path string, ranks [2]*simProgram) {
	t.Helper()
	found := make(map[int32]int)
	for _, r := range factRows(t, path, format.KindProcess) {
		var facts struct{ Identity format.Identity }
		if err := json.Unmarshal([]byte(r.Message), &facts); err != nil {
			t.Fatal(err)
		}
		id := facts.Identity
		rank := slices.IndexFunc(ranks[:], func(p *simProgram) bool { return int32(p.pid()) == r.Pid })
		if rank < 0 || id.Rank == nil || id.WorldSize == nil || id.LocalRank == nil || id.LocalWorldSize == nil ||
			id.NodeRank == nil ||
			id.Attempt == nil {
			t.Fatalf("process %d: %s", r.Pid, r.Message)
		}
		if *id.Rank != rank || *id.WorldSize != 2 || *id.LocalRank != rank || *id.LocalWorldSize != 2 ||
			*id.NodeRank != 0 ||
			*id.Attempt != 3 ||
			id.Job != "demo" ||
			id.Sources["rank"] != "env RANK" ||
			id.Sources["job"] != "env TORCHELASTIC_RUN_ID" {
			t.Errorf("rank %d: %s", rank, r.Message)
		}
		found[r.Pid]++
	}
	if len(found) != 2 {
		t.Errorf("rows of processes: %v", found)
	}
}

// checkSecrets checks that no column contains environment variables outside the allow-list.
func checkSecrets(t *testing.T, path string) {
	t.Helper()
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	rec, err := format.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	meta, err := json.Marshal(rec.Meta)
	if err != nil {
		t.Fatal(err)
	}
	all := bytes.NewBuffer(append(file, meta...))
	rows := 0
	err = rec.Rows(func(r *format.Row) error {
		rows++
		fmt.Fprintf(all, "%+v\n", *r)
		return nil
	}, format.ClassFact, format.ClassMemory, format.ClassCall, format.ClassStack, format.ClassSample, format.ClassAllocator)
	if err != nil {
		t.Fatal(err)
	}
	if rows < 9000 || !strings.Contains(all.String(), `"job":"demo"`) {
		t.Fatalf("only %d rows were searched", rows)
	}
	for _, secret := range []string{
		"wJalrXUtnFEMI",
		"AWS_SECRET",
		"hf_abc",
		"TRAINING_TOKEN",
		"RANK_SECRET",
		"hunter2",
		"SIMCUDA_LEDGER",
	} {
		if strings.Contains(all.String(), secret) {
			t.Errorf("the recording has %q", secret)
		}
	}
}

func TestIdentityIsReadAgainAfterAnExec(t *testing.T) {
	testclass.Root(t)
	needKernel(t)
	cmd, step, _ := simShell(
		t,
		copySimcuda(t),
		`RANK=5 WORLD_SIZE=8 exec $SIM/storm --calls 2000 --threads 1 --seed 1 --wait >/dev/null`,
	)
	opt := testOptions(t, cmd.Process.Pid)
	opt.WaitForLibrary, opt.SegmentInterval = true, 100*time.Millisecond
	result := runWhile(t, start(t, opt), func() {
		step()
		eventually(t, "the rank is written", func() bool {
			rec, err := format.Open(opt.Output + format.SegmentSuffix)
			if err != nil {
				return false
			}
			defer rec.Close()
			found := false
			err = rec.Rows(func(r *format.Row) error {
				found = found || strings.Contains(r.Message, `"rank":5,"world_size":8`)
				return nil
			}, format.ClassFact)
			return err == nil && found
		})
		step()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the recorded program failed: %v", err)
		}
	})
	first := factRows(t, result.Output, format.KindProcess)[0]
	if strings.Contains(first.Message, `"rank"`) {
		t.Errorf("the shell has a rank: %s", first.Message)
	}
}
