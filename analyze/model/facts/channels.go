package facts

import (
	"cmp"
	"slices"

	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// Channel is a channel of a GPU: a queue of operations that the GPU completes in order. Times are Unix
// ns on the clock of the recording.
type Channel struct {
	Number  int32 // number within the recording, from 1 on
	Pid     int32
	Device  int32 // NVML index of the GPU, -1 if it is unknown
	Address int64 // address of the progress word in the process
	// FirstCounter is the number of completed operations at StartNs.
	FirstCounter int64
	// StartNs is when the recorder found the channel. EndNs is when the channel was gone, 0 if it
	// existed until the end of the recording.
	StartNs, EndNs int64
}

// addChannel reads a row of kind channel. It replaces an earlier row of the channel.
func (f *Facts) addChannel(r *format.Row) {
	c := Channel{
		Number: r.Channel, Pid: r.Pid, Device: r.Device, Address: r.Ptr,
		FirstCounter: r.Counter, StartNs: r.StartNs,
	}
	if r.DurNs > 0 {
		c.EndNs = units.EndOfRange(r.StartNs, r.DurNs)
	}
	key := channelKey{c.Pid, c.Number}
	if i, ok := f.channels[key]; ok {
		f.Channels[i] = c
		return
	}
	f.channels[key] = len(f.Channels)
	f.Channels = append(f.Channels, c)
}

// sortChannels sorts the channels by number.
func (f *Facts) sortChannels() {
	slices.SortFunc(f.Channels, func(a, b Channel) int {
		return cmp.Or(cmp.Compare(a.Number, b.Number), cmp.Compare(a.Pid, b.Pid))
	})
	for i := range f.Channels {
		f.channels[channelKey{f.Channels[i].Pid, f.Channels[i].Number}] = i
	}
}

// channelKey identifies a channel.
type channelKey struct{ pid, number int32 }
