package analyzetest

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// NCCLCall is a line of the ledger of examples/simnccl. Columns are those of its README.
type NCCLCall struct {
	Pid, Tid                   int32
	Function                   string
	Result                     int32
	EntryNs, ReturnNs          int64 // CLOCK_MONOTONIC
	Handle, Communicator       int64
	Rank, Size                 int32
	ID, Sequence, Group, Count int64
	DataType, Reduction, Root  int // -1: none
	Stream, Bytes              int64
	BeginNs, EndNs             int64 // of the kernel, CLOCK_MONOTONIC; 0: it has not begun, or not ended
}

// IsOperation reports whether the call is a collective, a Send or a Recv.
func (c *NCCLCall) IsOperation() bool { return c.DataType >= 0 }

// ReadNCCLLedger returns the calls of a ledger in the order of their returns, with the times of their kernels.
func ReadNCCLLedger(t testing.TB, path string) []NCCLCall {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	type operation struct{ pid, id int64 }
	var calls []NCCLCall
	begins, ends := make(map[operation]int64), make(map[operation]int64)
	for line := range strings.Lines(string(text)) {
		f := ledgerFields{t: t, list: strings.Split(strings.TrimSuffix(line, "\n"), "\t")}
		switch kind := f.text(); kind {
		case "call":
			calls = append(calls, f.call())
		case "begin", "end":
			times := begins
			if kind == "end" {
				times = ends
			}
			key := operation{f.number(), f.number()}
			times[key] = f.number()
		default:
			t.Fatalf("%s: unknown line %q", path, line)
		}
	}
	for i := range calls {
		key := operation{int64(calls[i].Pid), calls[i].ID}
		calls[i].BeginNs, calls[i].EndNs = begins[key], ends[key]
	}
	return calls
}

// ledgerFields takes the columns of a line one after the other.
type ledgerFields struct {
	t    testing.TB
	list []string
}

func (f *ledgerFields) text() string {
	if len(f.list) == 0 {
		f.t.Fatal("a line of the ledger has too few columns")
	}
	text := f.list[0]
	f.list = f.list[1:]
	return text
}

func (f *ledgerFields) number() int64 {
	n, err := strconv.ParseInt(f.text(), 10, 64)
	if err != nil {
		f.t.Fatal(err)
	}
	return n
}

func (f *ledgerFields) hexadecimal() int64 {
	n, err := strconv.ParseUint(f.text(), 16, 64)
	if err != nil {
		f.t.Fatal(err)
	}
	return int64(n) //nolint:gosec // identities use all 64 bits
}

func (f *ledgerFields) call() (c NCCLCall) {
	c.Pid, c.Tid, c.ID = int32(f.number()), int32(f.number()), f.number()
	c.Function, c.Result = f.text(), int32(f.number())
	c.EntryNs, c.ReturnNs = f.number(), f.number()
	c.Handle, c.Communicator = f.number(), f.hexadecimal()
	c.Rank, c.Size = int32(f.number()), int32(f.number())
	c.Sequence, c.Group, c.Count = f.number(), f.number(), f.number()
	c.DataType, c.Reduction, c.Root = int(f.number()), int(f.number()), int(f.number())
	c.Stream, c.Bytes = f.number(), f.number()
	return c
}
