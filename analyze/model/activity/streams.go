package activity

// Stream is a CUDA stream from its first call until its destruction, or the copies of a context in
// one direction. Its operations run on one channel.
type Stream struct {
	Context     int64
	Handle      int64
	Pid, Device int32
	Tid         int32 // thread of a PerThreadStream, else 0
	Copies      Op    // OpCopyToDevice or OpCopyToHost for the copies of a context, else 0
}

// streamKey identifies a stream. A later stream with the same handle has another generation.
// context is 0 for streams that a handle identifies.
type streamKey struct {
	handle, context int64
	pid, tid        int32
	generation      int32
	copies          Op
}

// handleKey identifies a handle of a process.
type handleKey struct {
	pid    int32
	handle int64
}

// streamTable numbers the streams of a recording. The numbers depend only on the order of calls.
type streamTable struct {
	list        []Stream
	numbers     map[streamKey]int32
	generations map[handleKey]int32
	contexts    map[contextKey]int32 // generations
	lastKey     streamKey
	last        int32
	named       streamName // of the last streamOf
	ofNamed     int32      // its result; -1: a stream has ended since then
}

// streamName names the stream of a call.
type streamName struct {
	handle, context int64
	pid, tid        int32
}

func newStreamTable() *streamTable {
	return &streamTable{
		numbers: make(
			map[streamKey]int32,
		),
		generations: make(map[handleKey]int32),
		contexts:    make(map[contextKey]int32),
		ofNamed:     -1,
	}
}

// streamOf returns the stream that a call names. Most calls name the stream of the call before.
func (s *streamTable) streamOf(c *Call) int32 {
	named := streamName{c.Stream, c.Context, c.Pid, c.Tid}
	if s.ofNamed < 0 || named != s.named {
		s.named, s.ofNamed = named, s.find(c)
	}
	return s.ofNamed
}

// find is streamOf for another stream than the last one.
func (s *streamTable) find(c *Call) int32 {
	key := streamKey{pid: c.Pid, handle: c.Stream}
	switch c.Stream {
	case LegacyStream, PerThreadStream:
		key.context, key.generation = c.Context, s.contexts[contextKey{c.Pid, c.Context}]
		if c.Stream == PerThreadStream {
			key.tid = c.Tid
		}
	default:
		key.generation = s.generations[handleKey{c.Pid, c.Stream}]
	}
	return s.numberOf(key, c)
}

// queueOf returns the stream whose channel runs the operation of a call: the stream itself, or the copies
// of its context. The copies of the legacy default stream have a channel of their own.
func (s *streamTable) queueOf(c *Call, stream int32) int32 {
	if !c.runsOnEngine() {
		return stream
	}
	key := streamKey{pid: c.Pid, context: c.Context, copies: c.Op}
	key.generation = s.contexts[contextKey{c.Pid, c.Context}]
	if c.Stream == LegacyStream {
		key.handle = LegacyStream
	}
	return s.numberOf(key, c)
}

// endStream ends the stream of an OpEndStream. A later stream may have the same handle.
func (s *streamTable) endStream(c *Call) {
	s.ofNamed = -1
	if c.Stream != LegacyStream && c.Stream != PerThreadStream {
		s.generations[handleKey{c.Pid, c.Stream}]++
	}
}

// endContexts ends all streams of a context, or of a device.
func (s *streamTable) endContexts(c *Call) {
	s.ofNamed = -1
	ended := make(map[contextKey]bool)
	handles := make(map[handleKey]bool)
	for i := range s.list {
		stream := &s.list[i]
		if stream.Pid != c.Pid || c.Op == OpEndContext && stream.Context != c.Context ||
			c.Op == OpEndDevice && stream.Device != c.Device {
			continue
		}
		ended[contextKey{c.Pid, stream.Context}] = true
		if stream.Handle > PerThreadStream || stream.Handle < 0 {
			handles[handleKey{c.Pid, stream.Handle}] = true
		}
	}
	for key := range ended {
		s.contexts[key]++
	}
	for key := range handles {
		s.generations[key]++
	}
}

func (s *streamTable) numberOf(key streamKey, c *Call) int32 {
	if key == s.lastKey && len(s.list) > 0 {
		return s.last
	}
	number, ok := s.numbers[key]
	if !ok {
		number = int32(len(s.list))
		s.numbers[key] = number
		s.list = append(s.list, Stream{
			Context: c.Context, Handle: key.handle, Pid: key.pid, Device: c.Device, Tid: key.tid, Copies: key.copies,
		})
	}
	s.lastKey, s.last = key, number
	return number
}
