package census

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
)

func TestCompare(t *testing.T) {
	testclass.Unit(t)
	type counts = map[string]int64
	for _, c := range []struct {
		of    []counts // by rank
		kind  Kind
		ranks []int
		text  string
	}{
		{[]counts{{"AllReduce": 5}, {"AllReduce": 5}}, Equal, nil, "all ranks launched the same number of each operation"},
		{[]counts{{}, {"AllReduce": 0}}, Equal, nil, "all ranks launched the same number of each operation"},
		{
			[]counts{{"AllReduce": 1841}, {"AllReduce": 1840}},
			Behind,
			[]int{1},
			"rank 1 launched 1,840 AllReduce, rank 0 1,841",
		},
		{
			[]counts{{"AllReduce": 7, "Reduce": 2}, {"AllReduce": 4, "Reduce": 2}, {"AllReduce": 5, "Reduce": 2}},
			Behind,
			[]int{1},
			"rank 1 launched 4 AllReduce, the others 5 to 7",
		},
		{
			[]counts{{"AllReduce": 7, "Reduce": 3}, {"AllReduce": 4, "Reduce": 2}, {"AllReduce": 4, "Reduce": 2}},
			Behind,
			[]int{1, 2},
			"rank 0 launched 10 collectives, the others 6",
		},
		{
			[]counts{{"AllReduce": 7}, {"AllReduce": 6, "AllGather": 1}, {"AllReduce": 9}},
			Different,
			[]int{1},
			"rank 1 launched 1 AllGather more and 1 AllReduce less than rank 0",
		},
		{
			[]counts{{"AllReduce": 7}, {"AllReduce": 6, "AllGather": 2}},
			Different, nil,
			"the ranks launched different operations: rank 0 launched 1 AllReduce more and 2 AllGather less than rank 1",
		},
	} {
		var sides []Side
		for rank, counts := range c.of {
			sides = append(sides, Side{rank, counts})
		}
		got := Compare(sides)
		if got.Kind != c.kind || !slices.Equal(got.Ranks, c.ranks) || got.Text() != c.text {
			t.Errorf("%v: got %d %v %q\nwant %d %v %q", c.of, got.Kind, got.Ranks, got.Text(), c.kind, c.ranks, c.text)
		}
	}
}

// TestCompareFindsTheFaultOfAProgram runs random programs. One rank stops, or makes another call, and the others launch
// up to three operations more.
func TestCompareFindsTheFaultOfAProgram(t *testing.T) {
	testclass.Unit(t)
	functions := []string{"AllReduce", "AllGather", "ReduceScatter", "Broadcast"}
	r := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // a seed that repeats
	for range 2000 {
		ranks, length := 3+r.IntN(6), 1+r.IntN(40)
		program := make([]string, length+4)
		for i := range program {
			program[i] = functions[r.IntN(len(functions))]
		}
		culprit, kind := r.IntN(ranks), Kind(r.IntN(3))
		sides := make([]Side, ranks)
		for rank := range sides {
			sides[rank] = Side{rank, make(map[string]int64)}
			n := length
			if kind != Equal && rank != culprit {
				n += 1 + r.IntN(3)
			}
			for _, function := range program[:n] {
				sides[rank].Counts[function]++
			}
		}
		if kind == Different {
			sides[culprit].Counts["Reduce"]++ // instead of the next of program
		}
		got := Compare(sides)
		if got.Kind != kind || kind != Equal && !slices.Equal(got.Ranks, []int{culprit}) {
			t.Fatalf("%v: got %d %v, want %d of rank %d", sides, got.Kind, got.Ranks, kind, culprit)
		}
	}
}
