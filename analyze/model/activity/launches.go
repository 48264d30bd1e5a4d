package activity

// Launches counts the kernels or graphs with a channel that one stack of a thread launched into one stream.
type Launches struct {
	LaunchOrigin
	Operations int64
}

// LaunchOrigin identifies launches. Stream is as in Call.
type LaunchOrigin struct {
	Stream           int64
	Pid, Tid, Device int32
	Stack, Label     int32
	Op               Op // OpKernel or OpGraph
}

// maxLaunchOrigins bounds the stacks that launchCounts tells apart. Further launches count for stack 0.
const maxLaunchOrigins = 1 << 17

// launchCounts counts launches by origin.
type launchCounts struct {
	list    []Launches
	numbers map[LaunchOrigin]int32
	recent  [1 << 12]int32 // indices of list plus 1, by a hash
}

// add counts an operation.
func (l *launchCounts) add(w *Operation) {
	c := &w.Call
	if c.Op != OpKernel && c.Op != OpGraph {
		return
	}
	origin := LaunchOrigin{c.Stream, c.Pid, c.Tid, c.Device, c.Stack, c.Label, c.Op}
	recent := &l.recent[(uint32(c.Stack)*0x9e3779b1^uint32(c.Label)*0x85ebca6b^uint32(c.Tid)*0xc2b2ae35)>>20]
	if *recent == 0 || l.list[*recent-1].LaunchOrigin != origin {
		*recent = l.numberOf(origin) + 1
	}
	l.list[*recent-1].Operations++
}

func (l *launchCounts) numberOf(origin LaunchOrigin) int32 {
	n, ok := l.numbers[origin]
	if ok {
		return n
	}
	if origin.Stack != 0 && len(l.list) >= maxLaunchOrigins {
		origin.Stack = 0
		return l.numberOf(origin)
	}
	if l.numbers == nil {
		l.numbers = make(map[LaunchOrigin]int32)
	}
	n = int32(len(l.list))
	l.numbers[origin] = n
	l.list = append(l.list, Launches{LaunchOrigin: origin})
	return n
}
