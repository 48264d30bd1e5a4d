package format

// ColumnCache keeps what was decoded of one row group at a time, so that several who look at the
// same columns of it share them. The zero value is empty. Not safe for concurrent use.
type ColumnCache struct {
	int64s   cachedColumns[[]int64]
	int32s   cachedColumns[[]int32]
	float64s cachedColumns[[]float64]
	strings  cachedColumns[Strings]
}

// Wrap returns g as a Group that decodes each column once. What it returns is shared: it must
// not be changed, and is valid until Of is called again. Memory that it is given to read
// into is not used, and Err is that of what was read through it. Such a Group is not safe
// for concurrent use; others of the same rows are.
func (c *ColumnCache) Wrap(g *Group) *Group {
	c.int64s.forget()
	c.int32s.forget()
	c.float64s.forget()
	c.strings.forget()
	return &Group{rows: g.rows, columns: g.columns, path: g.path, index: g.index, kinds: g.Kinds(), kept: c}
}

// cachedColumns are columns of a row group by name, and the memory of those of the group before.
type cachedColumns[V any] map[string]*cachedColumn[V]

type cachedColumn[V any] struct {
	values V
	valid  bool // of this group
}

func (k cachedColumns[V]) forget() {
	for _, column := range k {
		column.valid = false
	}
}

// get returns a column, which read reads into memory if nobody has yet.
func (k *cachedColumns[V]) get(name string, read func(V) V) V {
	column := (*k)[name]
	if column == nil {
		if *k == nil {
			*k = make(cachedColumns[V])
		}
		column = new(cachedColumn[V])
		(*k)[name] = column
	}
	if !column.valid {
		column.values, column.valid = read(column.values), true
	}
	return column.values
}
