package analyze

// originTable numbers the origins of memory calls: everything that calls of one
// thread from one place have in common. A call then needs 4 bytes for all of it, and
// a report decides once per origin, not per call, what belongs where.
type originTable struct {
	originNumbers
	process []int32 // origin → number of its process
	pids    map[int32]int32
	thread  []int32 // origin → number of its thread
	threads map[thread]int32
}

// originNumbers are the numbers of origins.
type originNumbers struct {
	strings names
	ids     map[origin]int32
	list    []origin
	// recent is a cache in front of ids that most calls hit.
	recent [1 << 14]int32
}

// origin is a set of equal columns; name, site and memory index originTable.strings.
type origin struct {
	stream     int64
	context    int64
	pid, tid   int32
	device     int32
	stack      int32
	name, site int32
	memory     int32
}

func newOriginTable() originTable {
	return originTable{originNumbers: originNumbers{ids: make(map[origin]int32)}, pids: make(map[int32]int32), threads: make(map[thread]int32)}
}

// equals is ==, in line and with what differs most often first.
func (o *origin) equals(p *origin) bool {
	return o.stack == p.stack && o.tid == p.tid && o.name == p.name && o.stream == p.stream && o.context == p.context &&
		o.pid == p.pid && o.device == p.device && o.site == p.site && o.memory == p.memory
}

func (n *originNumbers) id(o origin) int32 {
	slot := &n.recent[(uint32(o.stack)*0x9e3779b1^uint32(o.tid)*0x85ebca6b^uint32(o.name)<<18)>>18]
	if int(*slot) < len(n.list) && n.list[*slot].equals(&o) {
		return *slot
	}
	id, ok := n.ids[o]
	if !ok {
		id = int32(len(n.list))
		n.ids[o] = id
		n.list = append(n.list, o)
	}
	*slot = id
	return id
}

// id is originNumbers.id, and knows process and thread of new origins.
func (t *originTable) id(o origin) int32 {
	id := t.originNumbers.id(o)
	if int(id) == len(t.process) {
		t.process = append(t.process, numbered(t.pids, o.pid))
		t.thread = append(t.thread, numbered(t.threads, thread{o.pid, o.tid}))
	}
	return id
}

func (t *originTable) name(id int32) string   { return t.strings.list[t.list[id].name] }
func (t *originTable) site(id int32) string   { return t.strings.list[t.list[id].site] }
func (t *originTable) memory(id int32) string { return t.strings.list[t.list[id].memory] }

// numbered returns the number of a key, the next one for a new key.
func numbered[K comparable](numbers map[K]int32, key K) int32 {
	n, ok := numbers[key]
	if !ok {
		n = int32(len(numbers))
		numbers[key] = n
	}
	return n
}
