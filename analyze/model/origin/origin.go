package origin

// None is the origin of what came from a place that was not seen.
const None = -1

// Table numbers the origins of memory calls: everything that calls of one
// thread from one place have in common. A call then needs 4 bytes for all of it, and
// a report decides once per origin, not per call, what belongs where.
type Table struct {
	Numbers
	Process []int32 // origin → number of its process
	Pids    map[int32]int32
	Thread  []int32 // origin → number of its thread
	threads map[Thread]int32
}

// Numbers are the numbers of origins.
type Numbers struct {
	Strings Names
	Ids     map[Origin]int32
	List    []Origin
	// recent is a cache in front of ids that most calls hit.
	recent [1 << 14]int32
}

// Origin is a set of equal columns; name, site and memory index Table.Strings.
type Origin struct {
	Stream     int64
	Context    int64
	Pid, Tid   int32
	Device     int32
	Stack      int32
	Name, Site int32
	Memory     int32
}

// NewTable returns an empty table.
func NewTable() Table {
	return Table{
		Numbers: Numbers{Ids: make(map[Origin]int32)},
		Pids:    make(map[int32]int32),
		threads: make(map[Thread]int32),
	}
}

// equals is ==, in line and with what differs most often first.
func (o *Origin) equals(p *Origin) bool {
	return o.Stack == p.Stack && o.Tid == p.Tid && o.Name == p.Name && o.Stream == p.Stream && o.Context == p.Context &&
		o.Pid == p.Pid && o.Device == p.Device && o.Site == p.Site && o.Memory == p.Memory
}

func (n *Numbers) ID(o Origin) int32 {
	slot := &n.recent[(uint32(o.Stack)*0x9e3779b1^uint32(o.Tid)*0x85ebca6b^uint32(o.Name)<<18)>>18]
	if int(*slot) < len(n.List) && n.List[*slot].equals(&o) {
		return *slot
	}
	id, ok := n.Ids[o]
	if !ok {
		id = int32(len(n.List))
		n.Ids[o] = id
		n.List = append(n.List, o)
	}
	*slot = id
	return id
}

// ID is Numbers.ID, and knows process and thread of new origins.
func (t *Table) ID(o Origin) int32 {
	id := t.Numbers.ID(o)
	if int(id) == len(t.Process) {
		t.Process = append(t.Process, Numbered(t.Pids, o.Pid))
		t.Thread = append(t.Thread, Numbered(t.threads, Thread{o.Pid, o.Tid}))
	}
	return id
}

func (t *Table) Name(id int32) string   { return t.Strings.List[t.List[id].Name] }
func (t *Table) Site(id int32) string   { return t.Strings.List[t.List[id].Site] }
func (t *Table) Memory(id int32) string { return t.Strings.List[t.List[id].Memory] }

// Numbered returns the number of a key, the next one for a new key.
func Numbered[K comparable](numbers map[K]int32, key K) int32 {
	n, ok := numbers[key]
	if !ok {
		n = int32(len(numbers))
		numbers[key] = n
	}
	return n
}
