package format

import (
	"cmp"
	"io"
	"slices"

	"github.com/gpurec/gpurec/format/columnwriter"
)

// ProgressRow is one row of kind progress: the progress word of a channel, as the recorder saw it
// at SeenNs. A GPU runs the operations of a channel in order, so Counter counts completed ones. Since 1.2.
type ProgressRow struct {
	// SeenNs is the time before the word was read, Unix ns on the clock of the recording.
	SeenNs int64 `parquet:"start_ns"`
	// GPUTimeNs is the time at which the GPU wrote Counter, Unix ns on the clock of the GPU. The
	// two clocks differ by up to a millisecond, and drift.
	GPUTimeNs int64 `parquet:"gpu_time_ns"`
	Counter   int64 `parquet:"counter"`
	Pid       int32 `parquet:"pid"`
	Channel   int32 `parquet:"channel"` // number of the channel within the recording, from 1 on
}

// channelKey identifies a channel within a row group.
type channelKey struct{ pid, channel int32 }

// progressColumns writes rows of kind progress to a Parquet file. It gathers the rows of a row
// group and writes them channel by channel: the differences between rows of one channel are small,
// and those between rows of several channels are not. Rows of a channel keep their order.
type progressColumns struct {
	columns *columnwriter.Writer[ProgressRow]
	rows    []ProgressRow
	order   []int32 // indexes of rows, by channel
	numbers map[channelKey]int32
	keys    []channelKey
	ofRow   []int32 // number of the channel of each row
	batch   []ProgressRow
}

func newProgressColumns() (*progressColumns, error) {
	same := &Row{Kind: KindProgress, Class: ClassProgress.String(), Device: -1}
	columns, err := columnwriter.NewWithConstants[ProgressRow](same, parquetWriterOptions()...)
	if err != nil {
		return nil, err
	}
	return &progressColumns{columns: columns, numbers: make(map[channelKey]int32)}, nil
}

// Reset starts a new file. It drops all rows since the last Close.
func (p *progressColumns) Reset(file io.Writer) {
	p.removeRows()
	p.columns.Reset(file)
}

func (p *progressColumns) removeRows() {
	p.rows, p.ofRow, p.keys = p.rows[:0], p.ofRow[:0], p.keys[:0]
	clear(p.numbers)
}

// WriteProgress appends rows. It keeps no reference to the slice.
func (p *progressColumns) WriteProgress(rows []ProgressRow) error {
	for len(rows) > 0 {
		n := min(len(rows), maxRowsPerRowGroup-len(p.rows))
		p.addRows(rows[:n])
		if rows = rows[n:]; len(p.rows) == maxRowsPerRowGroup {
			if err := p.writeRowsByChannel(); err != nil {
				return err
			}
		}
	}
	return nil
}

// addRows appends rows to the row group and numbers their channels.
func (p *progressColumns) addRows(rows []ProgressRow) {
	last, number := channelKey{}, int32(-1)
	for i := range rows {
		if key := (channelKey{rows[i].Pid, rows[i].Channel}); number < 0 || key != last {
			last, number = key, p.channelNumber(key)
		}
		p.ofRow = append(p.ofRow, number)
	}
	p.rows = append(p.rows, rows...)
}

// channelNumber returns the number of a channel in the row group, from 0 on.
func (p *progressColumns) channelNumber(key channelKey) int32 {
	n, ok := p.numbers[key]
	if !ok {
		n = int32(len(p.keys))
		p.numbers[key] = n
		p.keys = append(p.keys, key)
	}
	return n
}

// writeRowsByChannel writes the gathered rows, ordered by process and channel. The columns finish
// the row group when it has maxRowsPerRowGroup rows.
func (p *progressColumns) writeRowsByChannel() error {
	p.orderByChannel()
	if p.batch == nil {
		p.batch = make([]ProgressRow, 1024)
	}
	for at := 0; at < len(p.order); {
		n := min(len(p.batch), len(p.order)-at)
		for i, row := range p.order[at : at+n] {
			p.batch[i] = p.rows[row]
		}
		if _, err := p.columns.Write(p.batch[:n]); err != nil {
			return err
		}
		at += n
	}
	p.removeRows()
	return nil
}

// orderByChannel sets order by a counting sort: rows of one channel keep their order.
func (p *progressColumns) orderByChannel() {
	first := make([]int32, len(p.keys)) // next position in order of each channel
	for _, number := range p.ofRow {
		first[number]++
	}
	sorted := make([]int32, len(p.keys))
	for i := range sorted {
		sorted[i] = int32(i)
	}
	slices.SortFunc(sorted, func(a, b int32) int {
		x, y := p.keys[a], p.keys[b]
		return cmp.Or(cmp.Compare(x.pid, y.pid), cmp.Compare(x.channel, y.channel))
	})
	next := int32(0)
	for _, number := range sorted {
		first[number], next = next, next+first[number]
	}
	p.order = slices.Grow(p.order[:0], len(p.rows))[:len(p.rows)]
	for row, number := range p.ofRow {
		p.order[first[number]] = int32(row)
		first[number]++
	}
}

// Write appends rows of kind progress.
func (p *progressColumns) Write(rows []Row) (int, error) {
	for i := range rows {
		r := &rows[i]
		one := [1]ProgressRow{{r.StartNs, r.GPUTimeNs, r.Counter, r.Pid, r.Channel}}
		if err := p.WriteProgress(one[:]); err != nil {
			return i, err
		}
	}
	return len(rows), nil
}

// SetKeyValueMetadata adds a key-value pair to the metadata of the file.
func (p *progressColumns) SetKeyValueMetadata(key, value string) {
	p.columns.SetKeyValueMetadata(key, value)
}

// Close writes the gathered rows and the footer.
func (p *progressColumns) Close() error {
	if err := p.writeRowsByChannel(); err != nil {
		return err
	}
	return p.columns.Close()
}
