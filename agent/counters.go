package agent

import (
	"cmp"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gpurec/gpurec/format"
)

// Bounds of the counters. Names beyond a bound count as "other".
const (
	maxProcesses  = 1024
	maxIdentities = 256     // of ended processes
	maxBlocks     = 1 << 18 // live allocations of a process; further ones are not counted as memory
	maxSamples    = 256     // names of metrics of a GPU
	maxKinds      = 16      // kinds of copies and of memory
	maxResults    = 64      // results of failed calls
	maxXids       = 64      // codes of a GPU
)

// other is the name of what is above a bound.
const other = "other"

// endedFor is how long totals of ended processes keep their identity.
const endedFor = time.Hour

// counters count the rows of a ring. Its methods are safe for concurrent use.
type counters struct {
	mu        sync.Mutex
	processes map[int32]*processCounters // by pid; 0: those above the bound
	ended     map[ProcessIdentity]*endedCounters
	gpus      map[int32]*GPUMetrics // by NVML index
	lost      map[string]int64
	overhead  float64 // percent, -1: unknown
}

// endedCounters are the totals of ended processes with the same identity.
type endedCounters struct {
	Counters
	atNs int64 // end of the latest process, Unix ns
}

// processCounters are those of a process.
type processCounters struct {
	totals ProcessTotals
	gpus   map[int32]bool
	blocks map[blockKey]block
	lastNs int64 // when the latest call ended, Unix ns
	exitNs int64 // when the process ended, Unix ns; 0: it runs
}

// lateRowsNs is how long rows of calls may come after the row that says that their process ended.
const lateRowsNs = 10_000_000_000

// blockKey identifies memory. Handles of arrays and of physical memory are not addresses.
type blockKey struct {
	space string
	ptr   int64
}

// block is live memory.
type block struct {
	bytes, endNs int64 // endNs: when the allocation returned, Unix ns
	kind         string
}

func newCounters() *counters {
	return &counters{
		processes: make(map[int32]*processCounters), ended: make(map[ProcessIdentity]*endedCounters),
		gpus: make(map[int32]*GPUMetrics), lost: make(map[string]int64), overhead: -1,
	}
}

// add counts rows of one class. It does not keep the rows.
func (c *counters) add(class format.Class, rows []format.Row) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch class {
	case format.ClassFact:
		for i := range rows {
			c.addFact(&rows[i])
		}
	case format.ClassSample:
		for i := range rows {
			c.addSample(&rows[i])
		}
	case format.ClassMemory, format.ClassCall:
		for i := range rows {
			c.endBefore(&rows[i])
			c.processOf(rows[i].Pid).addCall(&rows[i])
		}
	}
}

// processOf returns the counters of a process.
func (c *counters) processOf(pid int32) *processCounters {
	if p := c.processes[pid]; p != nil {
		return p
	}
	if len(c.processes) >= maxProcesses {
		c.endExited(math.MaxInt64)
	}
	if len(c.processes) >= maxProcesses {
		pid = 0
	}
	p := c.processes[pid]
	if p == nil {
		p = &processCounters{blocks: make(map[blockKey]block), gpus: make(map[int32]bool)}
		p.totals.Pid = pid
		if pid == 0 {
			p.totals.Name = other
		}
		c.processes[pid] = p
	}
	return p
}

// addFact applies a process, its end, a GPU, a loss, or a note.
func (c *counters) addFact(row *format.Row) {
	switch row.Kind {
	case format.KindProcess:
		c.addProcess(row)
	case format.KindDevice:
		g := c.gpuOf(row.Device)
		var fact format.DeviceFact
		if json.Unmarshal([]byte(row.Message), &fact) == nil {
			g.UUID = fact.UUID
		}
		g.Name = row.Name
	case format.KindLost:
		c.lost[row.Name] += int64(row.Value)
	case format.KindNote:
		if row.Name == "overhead" {
			c.overhead = row.Value
		}
	}
}

// addProcess applies the identity of a process, or its end.
func (c *counters) addProcess(row *format.Row) {
	c.endBefore(row)
	p := c.processOf(row.Pid)
	if p.totals.Pid == 0 {
		return
	}
	var fact struct {
		ExitNs   int64           `json:"exit_ns"`
		Identity format.Identity `json:"identity"`
	}
	if json.Unmarshal([]byte(row.Message), &fact) != nil {
		return
	}
	id := &p.totals.ProcessIdentity
	id.Name = cmp.Or(row.Name, id.Name)
	if known := &fact.Identity; known.Known() {
		id.Job, id.Namespace, id.Pod = known.Job, known.Namespace, known.Pod
		id.Attempt, id.Rank = optionalNumber(known.Attempt), optionalNumber(known.Rank)
	}
	if fact.ExitNs != 0 {
		p.exitNs = fact.ExitNs
	}
}

// endBefore ends the process with the pid of a row if the row is of a later process.
func (c *counters) endBefore(row *format.Row) {
	if p := c.processes[row.Pid]; p != nil && p.exitNs != 0 && row.StartNs > p.exitNs {
		c.end(p, p.exitNs)
	}
}

// endExited ends the processes that exited before a time, Unix ns.
func (c *counters) endExited(beforeNs int64) {
	for _, p := range c.processes {
		if p.exitNs != 0 && p.exitNs < beforeNs {
			c.end(p, p.exitNs)
		}
	}
}

// optionalNumber returns a number as text, "" for nil.
func optionalNumber(n *int) string {
	if n == nil {
		return ""
	}
	return strconv.Itoa(*n)
}

// end moves the counters of a process to those of ended processes. The end frees its memory.
func (c *counters) end(p *processCounters, atNs int64) {
	delete(c.processes, p.totals.Pid)
	for _, b := range p.blocks {
		p.totals.addMemory(b.kind, MemoryTotals{FreedBytes: b.bytes})
	}
	id := p.identity()
	if c.ended[id] == nil && len(c.ended) >= maxIdentities {
		id = ProcessIdentity{Name: other}
	}
	e := c.ended[id]
	if e == nil {
		e = new(endedCounters)
		c.ended[id] = e
	}
	e.Counters.Sum(&p.totals.Counters)
	e.atNs = max(e.atNs, atNs)
}

// identity returns the identity with the GPUs that the process has used.
func (p *processCounters) identity() ProcessIdentity {
	id := p.totals.ProcessIdentity
	var gpus []string
	for _, device := range slices.Sorted(maps.Keys(p.gpus)) {
		gpus = append(gpus, strconv.Itoa(int(device)))
	}
	id.GPUs = strings.Join(gpus, ",")
	return id
}

// gpuOf returns the samples of a GPU.
func (c *counters) gpuOf(device int32) *GPUMetrics {
	g := c.gpus[device]
	if g == nil {
		g = &GPUMetrics{Index: device, Samples: make(map[string]float64), Xids: make(map[int64]int64)}
		c.gpus[device] = g
	}
	return g
}

// addSample applies a sample of a GPU or of a process, or an Xid.
func (c *counters) addSample(row *format.Row) {
	if row.Device < 0 {
		return
	}
	switch {
	case row.Kind == format.KindXid:
		var fact format.XidFact
		if json.Unmarshal([]byte(row.Message), &fact) == nil && !fact.Before {
			addBounded(c.gpuOf(row.Device).Xids, int64(row.Value), 1, maxXids, -1)
		}
	case row.Kind != format.KindNVML:
	case row.Pid == 0:
		g := c.gpuOf(row.Device)
		if _, ok := g.Samples[row.Name]; ok || len(g.Samples) < maxSamples {
			g.Samples[row.Name] = row.Value
		}
	case row.Name == "process_used_memory_bytes":
		if p := c.processes[row.Pid]; p != nil {
			if p.totals.UsedBytes == nil {
				p.totals.UsedBytes = make(map[int32]int64)
			}
			p.totals.UsedBytes[row.Device] = int64(row.Value)
		}
	}
}

// addBounded adds n to a counter of a map with at most limit keys. Further keys count as rest.
func addBounded[K comparable](counts map[K]int64, key K, n int64, limit int, rest K) {
	if _, ok := counts[key]; !ok && len(counts) >= limit {
		key = rest
	}
	counts[key] += n
}

// addCall counts a call.
func (p *processCounters) addCall(row *format.Row) {
	t := &p.totals
	t.Calls++
	p.lastNs = max(p.lastNs, row.StartNs+row.DurNs)
	if row.Device >= 0 && len(p.gpus) < maxKinds {
		p.gpus[row.Device] = true
	}
	unfinished := row.Flags&(format.FlagOpen|format.FlagAbandoned|format.FlagNoReturn) != 0
	if row.Result != 0 && !unfinished {
		if t.Errors == nil {
			t.Errors = make(map[int32]int64)
		}
		addBounded(t.Errors, max(row.Result, -1), 1, maxResults, -1)
		return
	}
	switch row.Kind {
	case format.KindLaunch:
		if row.Function == 0 && row.Ptr != 0 {
			t.GraphLaunches++
		} else {
			t.Launches++
		}
	case format.KindMemcpy:
		t.addCopy(row.CopyKind, CopyTotals{1, max(0, row.Bytes)})
	case format.KindSync:
		t.Syncs++
		t.SyncNs += max(0, row.DurNs)
	case format.KindAlloc:
		if !unfinished && row.Flags&format.FlagCaptured == 0 && row.Ptr != 0 {
			p.alloc(row)
		}
	case format.KindFree:
		if !unfinished && row.Flags&format.FlagCaptured == 0 {
			p.free(row)
		}
	}
}

// keyOf returns the key of the memory of a row.
func keyOf(row *format.Row) blockKey {
	switch row.MemoryKind {
	case format.MemoryArray, format.MemoryPhysical, format.MemoryIPC, format.MemoryExternal:
		return blockKey{row.MemoryKind, row.Ptr}
	}
	return blockKey{"", row.Ptr}
}

// alloc counts an allocation.
func (p *processCounters) alloc(row *format.Row) {
	key := keyOf(row)
	old, reused := p.blocks[key]
	if !reused && len(p.blocks) >= maxBlocks {
		return
	}
	if reused { // the row of its free comes later, or the free was lost
		p.totals.addMemory(old.kind, MemoryTotals{FreedBytes: old.bytes})
	}
	b := block{max(0, row.Bytes), row.StartNs + max(0, row.DurNs), row.MemoryKind}
	p.blocks[key] = b
	p.totals.addMemory(b.kind, MemoryTotals{AllocatedBytes: b.bytes})
}

// free counts a free. A free that began before the allocation returned belongs to earlier memory.
func (p *processCounters) free(row *format.Row) {
	key := keyOf(row)
	b, ok := p.blocks[key]
	if !ok || row.StartNs < b.endNs {
		return
	}
	delete(p.blocks, key)
	p.totals.addMemory(b.kind, MemoryTotals{FreedBytes: b.bytes})
}

// addMemory adds to the totals of a kind of memory.
func (c *Counters) addMemory(kind string, m MemoryTotals) {
	if c.Memory == nil {
		c.Memory = make(map[string]MemoryTotals)
	}
	old, ok := c.Memory[kind]
	if !ok && len(c.Memory) >= maxKinds {
		kind = other
		old = c.Memory[kind]
	}
	c.Memory[kind] = MemoryTotals{old.AllocatedBytes + m.AllocatedBytes, old.FreedBytes + m.FreedBytes}
}

// addCopy adds to the totals of a kind of copies.
func (c *Counters) addCopy(kind string, t CopyTotals) {
	if c.Copies == nil {
		c.Copies = make(map[string]CopyTotals)
	}
	old, ok := c.Copies[kind]
	if !ok && len(c.Copies) >= maxKinds {
		kind = other
		old = c.Copies[kind]
	}
	c.Copies[kind] = CopyTotals{old.Calls + t.Calls, old.Bytes + t.Bytes}
}

// Sum adds the counters of another process.
func (c *Counters) Sum(o *Counters) {
	c.Calls, c.Launches, c.GraphLaunches = c.Calls+o.Calls, c.Launches+o.Launches, c.GraphLaunches+o.GraphLaunches
	c.Syncs, c.SyncNs = c.Syncs+o.Syncs, c.SyncNs+o.SyncNs
	for kind, t := range o.Copies {
		c.addCopy(kind, t)
	}
	for kind, m := range o.Memory {
		c.addMemory(kind, m)
	}
	for result, n := range o.Errors {
		if c.Errors == nil {
			c.Errors = make(map[int32]int64)
		}
		addBounded(c.Errors, result, n, maxResults, -1)
	}
}

// take returns the counters. running are the recorded processes. Calls of an ended one may still come for a minute.
func (c *counters) take(running map[int]string, nowNs int64) Metrics {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endExited(nowNs - lateRowsNs)
	for pid, p := range c.processes {
		if _, ok := running[int(pid)]; !ok && pid != 0 && nowNs-p.lastNs > time.Minute.Nanoseconds() {
			c.end(p, nowNs)
		}
	}
	c.forgetEnded(nowNs)
	m := Metrics{Version: MetricsVersion, LostCalls: maps.Clone(c.lost), OverheadPercent: c.overhead}
	for _, pid := range slices.Sorted(maps.Keys(c.processes)) {
		p := c.processes[pid]
		t := ProcessTotals{Pid: pid, ProcessIdentity: p.identity(), UsedBytes: maps.Clone(p.totals.UsedBytes)}
		t.Name = cmp.Or(t.Name, running[int(pid)])
		t.Counters.Sum(&p.totals.Counters)
		m.Processes = append(m.Processes, t)
	}
	for id, e := range c.ended {
		t := ProcessTotals{ProcessIdentity: id}
		t.Counters.Sum(&e.Counters)
		m.Processes = append(m.Processes, t)
	}
	for _, device := range slices.Sorted(maps.Keys(c.gpus)) {
		g := *c.gpus[device]
		g.Samples, g.Xids = maps.Clone(g.Samples), maps.Clone(g.Xids)
		m.GPUs = append(m.GPUs, g)
	}
	return m
}

// forgetEnded adds the totals of processes that ended long ago to those of "other".
func (c *counters) forgetEnded(nowNs int64) {
	rest := ProcessIdentity{Name: other}
	for id, e := range c.ended {
		if id == rest || nowNs-e.atNs < endedFor.Nanoseconds() {
			continue
		}
		delete(c.ended, id)
		if c.ended[rest] == nil {
			c.ended[rest] = new(endedCounters)
		}
		c.ended[rest].Sum(&e.Counters)
	}
}
