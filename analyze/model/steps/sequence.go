package steps

import "math"

// element is one launch, copy or wait of a process in the order of calls.
type element struct {
	stack, label, grid, tid int32
	name                    int32 // of a wait: its function
	gapNs                   int32 // time outside CUDA before the call, ns
	isGraph                 bool
	touchesHost             bool
	isBroken                bool // calls before it may be missing
}

// isWait reports whether the element is a wait.
func (e *element) isWait() bool { return e.label < 0 }

// maxElements bounds the elements of all processes that the search for a repetition reads.
const maxElements = 1 << 20

// run is a series of launches with the same symbol.
type run struct {
	symbol, launches  int32
	gapNs             int32 // time outside CUDA before the run, ns
	touchesHost       bool  // waits for the host before the run, or copies from or to it
	isBroken          bool  // calls before it may be missing
	waits             bool  // waits for the GPU before the run
	optimizes, others bool  // has launches that update weights, and that do not
	graphs            bool  // has launches of graphs
}

// noSymbol is the symbol of elements that the sequence leaves out.
const noSymbol = -1

// runsOf joins elements with the same symbol.
func runsOf(list []element, symbolOf func(*element) int32, optimizes func(*element) bool) (runs []run) {
	touched, broken, waits := false, false, false
	gapNs := int32(0)
	for i := range list {
		e := &list[i]
		symbol := symbolOf(e)
		broken = broken || e.isBroken
		touched = touched || e.touchesHost
		gapNs = max(gapNs, e.gapNs)
		if symbol == noSymbol {
			waits = waits || e.isWait()
			continue
		}
		n := len(runs)
		if n == 0 || runs[n-1].symbol != symbol || broken {
			runs = append(runs, run{symbol: symbol, gapNs: gapNs, isBroken: broken, waits: waits})
			n++
		}
		r := &runs[n-1]
		r.launches++
		r.touchesHost, r.graphs = r.touchesHost || touched, r.graphs || e.isGraph
		if optimizes(e) {
			r.optimizes = true
		} else {
			r.others = true
		}
		touched, broken, waits, gapNs = false, false, false, 0
	}
	return runs
}

// saturate returns ns as an int32.
func saturate(ns int64) int32 { return int32(min(max(0, ns), math.MaxInt32)) }

// symbolNumbers gives small numbers to symbols.
type symbolNumbers map[int32]int32

// maxSymbols bounds the symbols of a sequence. Further symbols share the last number.
const maxSymbols = 1 << 12

func (s symbolNumbers) numberOf(v int32) int32 {
	n, ok := s[v]
	if !ok {
		n = int32(min(len(s), maxSymbols-1))
		s[v] = n
	}
	return n
}
