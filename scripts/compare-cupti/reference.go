package main

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/symbolize"
)

// kernelKey identifies kernels that are compared with each other.
type kernelKey struct {
	kernel string
	grid   [3]int32
}

// referenceOperation is an operation as CUPTI saw it, in Unix ns.
type referenceOperation struct {
	startNs, endNs int64
	stream         int  // 1,000 times the number of the context, and the number of the stream
	what           byte // k: kernel, c: copy, s: memset, g: graph
	copyKind       int  // CUpti_ActivityMemcpyKind
	key            kernelKey
}

// reference has the operations of a CUPTI reference in the order of their start.
type reference struct {
	operations     []referenceOperation
	fromNs, toNs   int64 // time in which all operations were recorded
	droppedRecords int64
}

// readReference reads a file of cupti_reference.cpp. Each line is a letter and numbers:
//
//	t UNIX_NS CUPTI_NS UNIX_NS             a pair of clocks
//	n NUMBER NAME                          a mangled kernel name
//	k START END CORRELATION STREAM NAME_NUMBER GRID_X GRID_Y GRID_Z GRAPH
//	c START END CORRELATION STREAM COPY_KIND GRAPH
//	s START END CORRELATION STREAM GRAPH   a memset
//	g START END CORRELATION STREAM KERNELS SUM_NS
//	d DROPPED                              records that CUPTI dropped
func readReference(path string) (*reference, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	p := referenceParser{
		names: make(map[int]string), graphNodes: make(map[int][]referenceOperation), graphs: make(map[int]int),
	}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for number := 1; lines.Scan(); number++ {
		if err := p.addLine(lines.Text()); err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", path, number, err)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	p.extendGraphs()
	r := &p.reference
	slices.SortFunc(r.operations, func(a, b referenceOperation) int { return int(a.startNs - b.startNs) })
	return r, nil
}

type referenceParser struct {
	reference
	names map[int]string
	// graphNodes are the copies and memsets of graphs, and graphs the graph launches in operations, both by
	// correlation.
	graphNodes map[int][]referenceOperation
	graphs     map[int]int
}

// extendGraphs extends graph launches by their copies and memsets.
func (p *referenceParser) extendGraphs() {
	for correlation, i := range p.graphs {
		g := &p.operations[i]
		for _, node := range p.graphNodes[correlation] {
			g.startNs, g.endNs = min(g.startNs, node.startNs), max(g.endNs, node.endNs)
		}
	}
}

func (p *referenceParser) addLine(line string) (err error) {
	w := referenceOperation{what: line[0]}
	var correlation, name, graph, count int
	scan := func(values ...any) {
		if _, scanErr := fmt.Sscan(line[2:], values...); scanErr != nil && err == nil {
			err = scanErr
		}
	}
	switch w.what {
	case 't':
		return p.addClocks(line)
	case 'n':
		number, mangled, _ := strings.Cut(line[2:], " ")
		line = "n " + number
		scan(&name)
		p.names[name] = symbolize.Demangle(mangled)
		return err
	case 'd':
		scan(&p.droppedRecords)
		return err
	case 'k':
		scan(
			&w.startNs,
			&w.endNs,
			&correlation,
			&w.stream,
			&name,
			&w.key.grid[0],
			&w.key.grid[1],
			&w.key.grid[2],
			&graph,
		)
		w.key.kernel = p.names[name]
	case 'c':
		scan(&w.startNs, &w.endNs, &correlation, &w.stream, &w.copyKind, &graph)
	case 's':
		scan(&w.startNs, &w.endNs, &correlation, &w.stream, &graph)
	case 'g':
		scan(&w.startNs, &w.endNs, &correlation, &w.stream, &count, &graph)
		graph = 0
		p.graphs[correlation] = len(p.operations)
	default:
		return nil
	}
	switch {
	case err != nil:
	case graph == 0:
		p.operations = append(p.operations, w)
	case w.what != 'k':
		p.graphNodes[correlation] = append(p.graphNodes[correlation], w)
	}
	return err
}

// addClocks notes when CUPTI was turned on and off. Its times must be Unix times.
func (p *referenceParser) addClocks(line string) error {
	var before, cupti, after int64
	if _, err := fmt.Sscan(line[2:], &before, &cupti, &after); err != nil {
		return err
	}
	const slackNs = 1_000_000
	if cupti < before-slackNs || cupti > after+slackNs {
		return fmt.Errorf("the clock of CUPTI is off by %d ns", cupti-before)
	}
	if p.fromNs == 0 {
		p.fromNs = after
	}
	p.toNs = before
	return nil
}
