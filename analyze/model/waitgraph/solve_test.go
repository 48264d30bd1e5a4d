package waitgraph

import (
	"math"
	"reflect"
	"testing"

	"github.com/gpurec/gpurec/analyze/model/collective"
	"github.com/gpurec/gpurec/internal/testclass"
)

// callOf is a collective of communicator 0 on stream 1.
func callOf(f collective.Function, number int64, p Progress) Operation {
	return Operation{
		Signature: Signature{Function: f, Root: -1, Count: 4}, Number: number, Order: number, Stream: 1,
		StartNs: number * second, Progress: p,
	}
}

// jobOf makes a job of one communicator from the calls of each rank, numbered from 10 on.
func jobOf(calls ...[]collective.Function) *Job {
	job := &Job{EndNs: 400 * second, LongNs: 10 * second}
	c := Communicator{}
	for rank, list := range calls {
		r := Rank{Host: HostWaits}
		for i, f := range list {
			r.Operations = append(r.Operations, callOf(f, int64(10+i), Launched))
			r.LastNs = int64(10+i) * second
		}
		job.Ranks = append(job.Ranks, r)
		c.Members, c.Entered = append(c.Members, rank), append(c.Entered, int64(9+len(list)))
	}
	job.Communicators = []Communicator{c}
	return job
}

func TestShift(t *testing.T) {
	testclass.Unit(t)
	const a, b, c, x = collective.AllReduce, collective.Broadcast, collective.AllGather, collective.Reduce
	type functions = []collective.Function
	for _, test := range []struct {
		name    string
		calls   []functions
		culprit []int
		shift   Shift
	}{
		{"extra", []functions{{a, b, c}, {a, b, c}, {a, x, b, c}}, []int{2}, ExtraCall},
		{"skipped", []functions{{a, b, c}, {a, c}, {a, b, c}}, []int{1}, SkippedCall},
		{"other call", []functions{{a, b, c}, {a, x, c}, {a, b, c}}, []int{1}, NoShift},
		{"swapped", []functions{{a, b, c}, {a, c, b}, {a, b, c}}, []int{1}, NoShift},
		{"two against two", []functions{{b}, {x}, {b}, {x}}, nil, NoShift},
		{"the absent could decide", []functions{{b}, {x}, {b}, {}}, nil, NoShift},
	} {
		f := Solve(jobOf(test.calls...)).Faults
		if len(f) == 0 || f[0].Kind != Mismatch || !reflect.DeepEqual(f[0].Ranks, test.culprit) ||
			f[0].Shift != test.shift {
			t.Errorf("%s: %+v", test.name, f)
		}
	}
}

func TestDeathOrder(t *testing.T) {
	testclass.Unit(t)
	const a = collective.AllReduce
	for _, test := range []struct {
		deadNs, clockError int64
		order              DeathOrder
	}{
		{10*second + 5, 0, DeathFirst}, {10*second + 5, second, DeathWithin}, {12 * second, second / 10, DeathShortly},
	} {
		job := jobOf([]collective.Function{a, a}, []collective.Function{a})
		job.Ranks[1].DeadNs = test.deadNs
		job.ClockErrorNs = func(int, int) int64 { return test.clockError }
		f := Solve(job).Faults
		if len(f) != 1 || f[0].Kind != Died || f[0].Order != test.order || f[0].Waiting != 1 ||
			f[0].LeadNs != 11*second-test.deadNs {
			t.Errorf("%+v: %+v", test, f)
		}
	}
}

func BenchmarkSolve(b *testing.B) {
	calls := make([][]collective.Function, 1024)
	for i := range calls {
		for range 200 {
			calls[i] = append(calls[i], collective.AllReduce)
		}
	}
	calls[517] = calls[517][:150]
	job := jobOf(calls...)
	for b.Loop() {
		if f := Solve(job).Faults; len(f) != 1 || f[0].Ranks[0] != 517 {
			b.Fatal(f)
		}
	}
}

// TestRecordingsThatEndEarlier has a rank whose recording ends before that of the others: it may have called the
// operation since.
func TestRecordingsThatEndEarlier(t *testing.T) {
	testclass.Unit(t)
	const a = collective.AllReduce
	for _, test := range []struct{ endNs, faults int64 }{{12 * second, 0}, {20 * second, 0}, {21 * second, 1}, {0, 1}} {
		job := jobOf([]collective.Function{a, a}, []collective.Function{a})
		job.Ranks[1].EndNs = test.endNs
		if f := Solve(job).Faults; int64(len(f)) != test.faults {
			t.Errorf("the recording ends at %d: %+v", test.endNs, f)
		}
	}
}

func TestLastOrder(t *testing.T) {
	testclass.Unit(t)
	job := jobOf([]collective.Function{collective.AllReduce}, nil)
	job.Ranks[0].Operations[0].Order = math.MaxInt64
	if f := Solve(job).Faults; len(f) != 1 || f[0].Kind != Missing {
		t.Errorf("%+v", f)
	}
}
