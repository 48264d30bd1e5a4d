package origin

// NoOrigin is the origin of memory whose allocation was not recorded.
const NoOrigin = -1

// OriginTable numbers the origins of memory calls. A call then needs 4 bytes for its origin, and a
// report classifies each origin once instead of each call.
type OriginTable struct {
	OriginNumbers
	Process []int32 // number of the process, by origin
	Pids    map[int32]int32
	Thread  []int32 // number of the thread, by origin
	threads map[Thread]int32
}

// OriginNumbers assigns a number to each distinct Origin.
type OriginNumbers struct {
	Strings StringNumbers
	Ids     map[CallOrigin]int32
	List    []CallOrigin
	// recent is a cache in front of Ids. Most calls hit it.
	recent [1 << 14]int32
}

// CallOrigin is the set of columns that all calls of a thread from one call site share. Name, Site
// and Memory index Table.Strings.
type CallOrigin struct {
	Stream     int64 // stream handle; 0 is the default stream
	Context    int64
	Pid, Tid   int32
	Device     int32
	Stack      int32
	Via        int32 // stack of the call for which an autograd thread works, 0: none
	Name, Site int32
	Memory     int32
}

// NewOriginTable returns an empty table.
func NewOriginTable() OriginTable {
	return OriginTable{
		OriginNumbers: OriginNumbers{Ids: make(map[CallOrigin]int32)},
		Pids:          make(map[int32]int32),
		threads:       make(map[Thread]int32),
	}
}

// equals compares like ==, but can be inlined, and compares first the fields that differ most
// often.
func (o *CallOrigin) equals(p *CallOrigin) bool {
	return o.Stack == p.Stack && o.Tid == p.Tid && o.Via == p.Via && o.Name == p.Name && o.Stream == p.Stream &&
		o.Context == p.Context && o.Pid == p.Pid && o.Device == p.Device && o.Site == p.Site && o.Memory == p.Memory
}

// NumberOf returns the number of an origin. A new origin gets the next number.
func (n *OriginNumbers) NumberOf(o CallOrigin) int32 {
	mixed := uint32(o.Stack)*0x9e3779b1 ^ uint32(o.Tid)*0x85ebca6b ^ uint32(o.Name)<<18 ^ uint32(o.Via)*0xc2b2ae35
	slot := &n.recent[mixed>>18]
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

// NumberOf returns the number of an origin, and numbers the process and thread of a new origin.
func (t *OriginTable) NumberOf(o CallOrigin) int32 {
	id := t.OriginNumbers.NumberOf(o)
	if int(id) == len(t.Process) {
		process, thread := t.NumbersOfThread(o.Pid, o.Tid)
		t.Process, t.Thread = append(t.Process, process), append(t.Thread, thread)
	}
	return id
}

// NumbersOfThread returns the numbers of a process and of one of its threads.
func (t *OriginTable) NumbersOfThread(pid, tid int32) (process, thread int32) {
	return NumberOfKey(t.Pids, pid), NumberOfKey(t.threads, Thread{pid, tid})
}

// FunctionOf returns the CUDA function of an origin.
func (t *OriginTable) FunctionOf(id int32) string { return t.Strings.List[t.List[id].Name] }

// SiteOf returns the recorded call site of an origin.
func (t *OriginTable) SiteOf(id int32) string { return t.Strings.List[t.List[id].Site] }

// MemoryKindOf returns the memory kind of an origin.
func (t *OriginTable) MemoryKindOf(id int32) string { return t.Strings.List[t.List[id].Memory] }

// EarlierSite is the call site of memory from before the recording.
const EarlierSite = "(before the recording)"

// NumberOfEarlier returns the number of the origin of memory from before the recording. kind is the memory kind, pool
// the name of a caching allocator's pool, or "".
func (t *OriginTable) NumberOfEarlier(pid, device int32, stream int64, kind, pool string) int32 {
	return t.numberWithoutCall(EarlierSite, pid, device, stream, kind, pool)
}

// UnseenSite is the call site of a block that an allocator allocated while its events were not recorded.
const UnseenSite = "(site not seen)"

// NumberOfUnseen returns the number of the origin of blocks whose allocation was not recorded, because the events of their
// allocator were recorded for part of the time only. kind and pool are as for NumberOfEarlier.
func (t *OriginTable) NumberOfUnseen(pid, device int32, stream int64, kind, pool string) int32 {
	return t.numberWithoutCall(UnseenSite, pid, device, stream, kind, pool)
}

// numberWithoutCall returns the number of an origin without a thread and a stack.
func (t *OriginTable) numberWithoutCall(site string, pid, device int32, stream int64, kind, pool string) int32 {
	return t.NumberOf(CallOrigin{
		Pid: pid, Device: device, Stream: stream,
		Name: t.Strings.NumberOf(pool), Site: t.Strings.NumberOf(site), Memory: t.Strings.NumberOf(kind),
	})
}

// IsEarlier reports whether an origin is that of memory from before the recording. NoOrigin is not.
func (t *OriginTable) IsEarlier(id int32) bool { return t.isWithoutCall(id, EarlierSite) }

// IsUnseen reports whether an origin is that of blocks whose allocation was not recorded: see NumberOfUnseen.
func (t *OriginTable) IsUnseen(id int32) bool { return t.isWithoutCall(id, UnseenSite) }

func (t *OriginTable) isWithoutCall(id int32, site string) bool {
	return id >= 0 && t.List[id].Tid == 0 && t.List[id].Stack == 0 && t.SiteOf(id) == site
}

// NumberOfKey returns the number of a key. A new key gets the next number.
func NumberOfKey[K comparable](numbers map[K]int32, key K) int32 {
	n, ok := numbers[key]
	if !ok {
		n = int32(len(numbers))
		numbers[key] = n
	}
	return n
}
