package symbolize

import (
	"bytes"
	"cmp"
	"container/heap"
	"fmt"
	"io"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// Limits of ReadPerfMap: a process that reaches them has made a function a second for twelve days.
const (
	maxPerfMapEntries = 1 << 20
	maxPerfMapLine    = 4 << 10
	maxPerfMapBytes   = 256 << 20
)

// PerfMap is the functions that a process with a JIT (Node.js, Java, Python with perf support) says
// it made, as in /tmp/perf-PID.map. It never changes: its methods may be called from several
// goroutines at once.
type PerfMap struct {
	entries   []perfEntry
	names     string
	spans     []span
	skipped   int
	truncated bool
}

// perfEntry is one line; its name is length bytes of PerfMap.names from name.
type perfEntry struct {
	start, size  uint64
	name, length uint32
}

// span says that addresses from start to the next span belong to an entry, or to none if it is
// negative.
type span struct {
	start uint64
	entry int32
}

// ReadPerfMap parses lines "START SIZE NAME", both numbers in hexadecimal. Where functions overlap,
// the one further down wins, since a JIT uses the memory of dropped code again. Lines of another
// form, over 4 KiB, or beyond 1 million (1<<20) are skipped and counted; so is a last line without
// a newline, which the process may still be writing. It fails only if r does.
func ReadPerfMap(r io.Reader) (*PerfMap, error) {
	limited := &io.LimitedReader{R: r, N: maxPerfMapBytes}
	lines := newLineReader(limited, maxPerfMapLine)
	p := new(PerfMap)
	var names strings.Builder
	for {
		line, whole, err := lines.next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read perf map: %w", err)
		}
		e, name, ok := parsePerfLine(line)
		if !ok || !whole || len(p.entries) == maxPerfMapEntries {
			p.skipped++
			p.truncated = p.truncated || len(p.entries) == maxPerfMapEntries
			continue
		}
		e.name, e.length = uint32(names.Len()), uint32(len(name))
		names.Write(name)
		p.entries = append(p.entries, e)
	}
	p.truncated = p.truncated || limited.N == 0
	p.names = names.String()
	p.spans = overlay(p.entries)
	return p, nil
}

func parsePerfLine(line []byte) (e perfEntry, name []byte, ok bool) {
	startText, rest, _ := bytes.Cut(line, []byte(" "))
	sizeText, name, _ := bytes.Cut(rest, []byte(" "))
	start, err1 := parseHex(startText)
	size, err2 := parseHex(sizeText)
	if err1 != nil || err2 != nil || size == 0 || start+size < start || len(name) == 0 {
		return perfEntry{}, nil, false
	}
	return perfEntry{start: start, size: size}, name, true
}

// parseHex parses a number with or without "0x": the format has none, some writers do.
func parseHex(text []byte) (uint64, error) {
	return strconv.ParseUint(strings.TrimPrefix(string(text), "0x"), 16, 64)
}

// overlay cuts overlapping entries into spans of which each belongs to the last entry that covers
// it. It walks over all ends of entries in order and keeps the entries open there in a heap, the
// last on top.
func overlay(entries []perfEntry) []span {
	order := make([]int32, len(entries))
	edges := make([]uint64, 0, 2*len(entries))
	for i := range entries {
		order[i] = int32(i)
		edges = append(edges, entries[i].start, entries[i].start+entries[i].size)
	}
	slices.SortFunc(order, func(a, b int32) int {
		return cmp.Compare(entries[a].start, entries[b].start)
	})
	slices.Sort(edges)
	edges = slices.Compact(edges)
	var spans []span
	var open lastFirst
	current := int32(-1)
	for _, edge := range edges {
		for len(order) > 0 && entries[order[0]].start == edge {
			heap.Push(&open, order[0])
			order = order[1:]
		}
		for len(open) > 0 && entries[open[0]].start+entries[open[0]].size <= edge {
			heap.Pop(&open)
		}
		top := int32(-1)
		if len(open) > 0 {
			top = open[0]
		}
		if top != current {
			spans = append(spans, span{edge, top})
			current = top
		}
	}
	return spans
}

// lastFirst is a heap of entry numbers with the greatest on top.
type lastFirst []int32

func (h lastFirst) Len() int           { return len(h) }
func (h lastFirst) Less(i, j int) bool { return h[i] > h[j] }
func (h lastFirst) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *lastFirst) Push(x any)        { *h = append(*h, x.(int32)) }
func (h *lastFirst) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// Lookup returns the function at an address of the process and how many bytes addr lies behind its
// start. Symbol.Start and Size are as written, even if a later function covers a part of it.
func (p *PerfMap) Lookup(addr uint64) (s Symbol, offset uint64, ok bool) {
	i := sort.Search(len(p.spans), func(i int) bool { return p.spans[i].start > addr }) - 1
	if i < 0 || p.spans[i].entry < 0 {
		return Symbol{}, 0, false
	}
	e := &p.entries[p.spans[i].entry]
	name := strings.Clone(p.names[e.name : e.name+e.length])
	return Symbol{Name: name, Start: e.start, Size: e.size}, addr - e.start, true
}

// Len returns the number of functions, those that later ones cover included.
func (p *PerfMap) Len() int { return len(p.entries) }

// Skipped returns the number of lines that were not used.
func (p *PerfMap) Skipped() int { return p.skipped }

// Truncated says that the input was longer than ReadPerfMap reads: over 1 million functions or 256
// MiB.
func (p *PerfMap) Truncated() bool { return p.truncated }
