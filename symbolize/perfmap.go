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

// Limits of ReadPerfMap. A process that reaches them has compiled one function per second for
// twelve days.
const (
	maxPerfMapEntries   = 1 << 20
	maxPerfMapLineBytes = 4 << 10
	maxPerfMapBytes     = 256 << 20
)

// PerfMap holds the functions that a JIT compiler (Node.js, Java, Python) has written into
// /tmp/perf-PID.map. It is immutable, so its methods are safe for concurrent use.
type PerfMap struct {
	entries   []perfMapEntry
	names     string
	spans     []perfMapSpan
	skipped   int
	truncated bool
}

// perfMapEntry is one line of a perf map. Its name is PerfMap.names[name:name+length].
type perfMapEntry struct {
	start, size  uint64
	name, length uint32
}

// perfMapSpan assigns the addresses from start to the next span to an entry. A negative entry means
// no function.
type perfMapSpan struct {
	start uint64
	entry int32
}

// ReadPerfMap parses lines "START SIZE NAME" with hexadecimal numbers. If functions overlap, the
// later line wins, because a JIT compiler reuses memory of discarded functions. ReadPerfMap skips
// and counts malformed lines, lines over 4 KiB and lines after the first 1<<20. It also skips a
// last line without newline, which the process may still be writing. It returns only errors of r.
func ReadPerfMap(r io.Reader) (*PerfMap, error) {
	limited := &io.LimitedReader{R: r, N: maxPerfMapBytes}
	lines := newBoundedLineReader(limited, maxPerfMapLineBytes)
	p := new(PerfMap)
	var names strings.Builder
	for {
		line, whole, err := lines.nextLine()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read perf map: %w", err)
		}
		e, name, ok := parsePerfMapLine(line)
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
	p.spans = splitOverlappingEntries(p.entries)
	return p, nil
}

// parsePerfMapLine parses one line of /tmp/perf-PID.map. It returns false for a malformed line.
func parsePerfMapLine(line []byte) (e perfMapEntry, name []byte, ok bool) {
	startText, rest, _ := bytes.Cut(line, []byte(" "))
	sizeText, name, _ := bytes.Cut(rest, []byte(" "))
	start, err1 := parseHexNumber(startText)
	size, err2 := parseHexNumber(sizeText)
	if err1 != nil || err2 != nil || size == 0 || start+size < start || len(name) == 0 {
		return perfMapEntry{}, nil, false
	}
	return perfMapEntry{start: start, size: size}, name, true
}

// parseHexNumber parses a hexadecimal number. Some writers add a "0x" prefix, against the format.
func parseHexNumber(text []byte) (uint64, error) {
	return strconv.ParseUint(strings.TrimPrefix(string(text), "0x"), 16, 64)
}

// splitOverlappingEntries cuts overlapping entries into spans. Each span belongs to the last entry
// that covers it. overlay walks over the sorted bounds of all entries and keeps the entries that
// cover the current address in a heap.
func splitOverlappingEntries(entries []perfMapEntry) []perfMapSpan {
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
	var spans []perfMapSpan
	var open entryNumberHeap
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
			spans = append(spans, perfMapSpan{edge, top})
			current = top
		}
	}
	return spans
}

// entryNumberHeap is a heap of entry numbers with the largest number on top.
type entryNumberHeap []int32

func (h entryNumberHeap) Len() int           { return len(h) }
func (h entryNumberHeap) Less(i, j int) bool { return h[i] > h[j] }
func (h entryNumberHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *entryNumberHeap) Push(x any)        { *h = append(*h, x.(int32)) }
func (h *entryNumberHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// Lookup returns the function at an address of the process, and the offset of addr from its start.
// Start and Size are as in the perf map, even if a later function overlaps.
func (p *PerfMap) Lookup(addr uint64) (s Symbol, offset uint64, ok bool) {
	i := sort.Search(len(p.spans), func(i int) bool { return p.spans[i].start > addr }) - 1
	if i < 0 || p.spans[i].entry < 0 {
		return Symbol{}, 0, false
	}
	e := &p.entries[p.spans[i].entry]
	name := strings.Clone(p.names[e.name : e.name+e.length])
	return Symbol{Name: name, Start: e.start, Size: e.size}, addr - e.start, true
}

// Len returns the number of functions, including those that later functions cover.
func (p *PerfMap) Len() int { return len(p.entries) }

// Skipped returns the number of skipped lines.
func (p *PerfMap) Skipped() int { return p.skipped }

// Truncated reports whether the input exceeded a limit of ReadPerfMap: 1<<20 functions or 256 MiB.
func (p *PerfMap) Truncated() bool { return p.truncated }
