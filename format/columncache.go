package format

// ColumnCache caches the decoded columns of one row group, so that several readers of the same row
// group decode each column once. The zero value is an empty cache. It is not safe for concurrent
// use.
type ColumnCache struct {
	int64s   cachedColumns[[]int64]
	int32s   cachedColumns[[]int32]
	float64s cachedColumns[[]float64]
	strings  cachedColumns[Strings]
}

// Wrap returns a Group with the rows of g that decodes each column at most once. Column methods of
// the result return slices of the cache: callers must not change them, and the next Wrap reuses
// them. Those methods ignore their dst argument. Err of the result reports only errors of reads
// through it. The result is not safe for concurrent use, but g still is.
func (c *ColumnCache) Wrap(g *Group) *Group {
	c.int64s.invalidateColumns()
	c.int32s.invalidateColumns()
	c.float64s.invalidateColumns()
	c.strings.invalidateColumns()
	return &Group{
		rows: g.rows, columns: g.columns, path: g.path, index: g.index, kinds: g.Kinds(), cache: c,
		recording: g.recording, reads: g.reads,
	}
}

// cachedColumns holds decoded columns by name. After invalidate, the memory of old values is
// reused.
type cachedColumns[V any] map[string]*cachedColumn[V]

type cachedColumn[V any] struct {
	values V
	valid  bool // values are those of the current row group
}

func (c cachedColumns[V]) invalidateColumns() {
	for _, column := range c {
		column.valid = false
	}
}

// decodeOnce returns a column. If the cache has no valid values, read decodes them into the old
// memory.
func (c *cachedColumns[V]) decodeOnce(name string, read func(V) V) V {
	column := (*c)[name]
	if column == nil {
		if *c == nil {
			*c = make(cachedColumns[V])
		}
		column = new(cachedColumn[V])
		(*c)[name] = column
	}
	if !column.valid {
		column.values, column.valid = read(column.values), true
	}
	return column.values
}
