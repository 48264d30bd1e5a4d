package progress

import (
	"cmp"
	"math"

	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/format"
)

// Sample is the progress word of a channel as the recorder read it: Counter operations had begun,
// the last one at GPUTimeNs. The recorder writes a sample only if the counter has changed, and for
// its last read of a channel.
type Sample struct {
	// SeenNs is the time before the word was read, Unix ns on the clock of the recording.
	SeenNs int64
	// GPUTimeNs is Unix ns on the clock of the GPU. This clock differs from the clock of the
	// recording by up to a millisecond, and drifts. Counter and GPUTimeNs may belong to different
	// operations, because the GPU writes them one after the other.
	GPUTimeNs int64
	Counter   int64
	Pid       int32
	Channel   int32 // facts.Channel.Number
}

func (s *Sample) isSeenBefore(o *Sample) bool {
	if s.SeenNs != o.SeenNs {
		return s.SeenNs < o.SeenNs
	}
	return cmp.Or(cmp.Compare(s.Pid, o.Pid), cmp.Compare(s.Channel, o.Channel), cmp.Compare(s.Counter, o.Counter)) < 0
}

// Reader reads the samples of all channels in the order of SeenNs. It keeps only those row groups
// in memory that overlap the current time. A Reader is not safe for concurrent use.
type Reader struct {
	T *timeline.Timeline

	samples *timeline.OrderedRows[Sample] // nil before the first NextSamples
	spare   [][]Sample                    // memory of row groups that were yielded
	merged  []Sample                      // buffer of sortBySeenTime

	seen, gpuTime, counter []int64
	pid, channel           []int32
}

// NewReader returns a Reader at the first sample of a recording.
func NewReader(t *timeline.Timeline) *Reader { return &Reader{T: t} }

// HasSamples reports whether the recording has progress rows.
func HasSamples(t *timeline.Timeline) bool { return len(t.Progress) > 0 }

// EachSample calls yield for every remaining sample, in the order of SeenNs. The pointer is valid
// until yield returns. It returns the first error of reading or of yield.
func (r *Reader) EachSample(yield func(*Sample) error) error {
	for {
		samples, err := r.NextSamples()
		if err != nil || len(samples) == 0 {
			return err
		}
		for i := range samples {
			if err := yield(&samples[i]); err != nil {
				return err
			}
		}
	}
}

// NextSamples returns the next samples in the order of SeenNs, or none at the end. They are valid
// until the following call. Callers use it to merge samples with other events.
func (r *Reader) NextSamples() ([]Sample, error) {
	if r.samples == nil {
		spans, err := timeline.Remember(r.T, spansOf{}, func() ([]timeline.Span, error) { return readSpans(r.T) })
		if err != nil {
			return nil, r.T.WrapReadError(err)
		}
		r.samples = timeline.NewOrderedRows(spans, timeline.RowStream[Sample]{
			Load:    func(s timeline.Span) ([]Sample, error) { return r.readGroup(s.Group) },
			Release: func(_ timeline.Span, samples []Sample) { r.spare = append(r.spare, samples) },
			At:      func(s *Sample) int64 { return s.SeenNs },
			Less:    (*Sample).isSeenBefore,
		})
	}
	samples, err := r.samples.NextRows()
	return samples, r.T.WrapReadError(err)
}

// spansOf is the key of readSpans in the memo of a Timeline.
type spansOf struct{}

// readSpans returns the row groups with the time of their first sample.
func readSpans(t *timeline.Timeline) ([]timeline.Span, error) {
	var spans []timeline.Span
	var seen []int64
	for i, g := range t.Progress {
		seen = g.Int64("start_ns", seen)
		first := int64(math.MaxInt64)
		for _, ns := range seen {
			first = min(first, ns)
		}
		if err := g.Err(); err != nil {
			return nil, err
		}
		spans = append(spans, timeline.Span{Group: g, Index: i, FirstNs: first})
	}
	return spans, nil
}

// readGroup returns the samples of a row group, sorted by SeenNs.
func (r *Reader) readGroup(g *format.Group) ([]Sample, error) {
	r.seen, r.gpuTime = g.Int64("start_ns", r.seen), g.Int64("gpu_time_ns", r.gpuTime)
	r.counter = g.Int64("counter", r.counter)
	r.pid, r.channel = g.Int32("pid", r.pid), g.Int32("channel", r.channel)
	if err := g.Err(); err != nil {
		return nil, err
	}
	var samples []Sample
	if n := len(r.spare); n > 0 {
		samples, r.spare = r.spare[n-1][:0], r.spare[:n-1]
	}
	for i, seen := range r.seen {
		samples = append(samples, Sample{seen, r.gpuTime[i], r.counter[i], r.pid[i], r.channel[i]})
	}
	return r.sortBySeenTime(samples), nil
}

// sortBySeenTime sorts the samples of a row group, which has the samples of one channel after the
// other. It returns the sorted samples, and keeps the other buffer for the next row group.
func (r *Reader) sortBySeenTime(samples []Sample) []Sample {
	ends := sortChannels(samples)
	if cap(r.merged) < len(samples) {
		r.merged = make([]Sample, len(samples))
	}
	from, to := samples, r.merged[:len(samples)]
	for len(ends) > 1 { // merge pairs of neighbors
		begin, kept := 0, ends[:0]
		for i := 0; i < len(ends); i += 2 {
			middle, end := ends[i], ends[min(i+1, len(ends)-1)]
			mergeSorted(to[begin:end], from[begin:middle], from[middle:end])
			begin, kept = end, append(kept, end)
		}
		ends, from, to = kept, to, from
	}
	r.merged = to
	return from
}

// sortChannels sorts each run of samples of one channel by time. It returns the ends of the runs.
func sortChannels(samples []Sample) (ends []int) {
	for begin := 0; begin < len(samples); {
		end := begin + 1
		for end < len(samples) && samples[end].Channel == samples[begin].Channel &&
			samples[end].Pid == samples[begin].Pid {
			end++
		}
		timeline.SortNearlySorted(samples[begin:end], (*Sample).isSeenBefore)
		ends = append(ends, end)
		begin = end
	}
	return ends
}

// mergeSorted merges two sorted slices into dst, which has the length of both.
func mergeSorted(dst, a, b []Sample) {
	for i := range dst {
		if len(b) == 0 || len(a) > 0 && !b[0].isSeenBefore(&a[0]) {
			dst[i], a = a[0], a[1:]
		} else {
			dst[i], b = b[0], b[1:]
		}
	}
}
