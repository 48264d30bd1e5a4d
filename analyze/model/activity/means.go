package activity

// meanTable has the estimated durations of a process by kind and label plus 1. Each operation asks for one.
type meanTable [OpCopyToHost + 1][]*Duration

// meanTables returns the tables of all processes.
func meanTables(means map[durationKey]*Duration) map[int32]*meanTable {
	tables := make(map[int32]*meanTable)
	for key, d := range means {
		table := tables[key.pid]
		if table == nil {
			table = new(meanTable)
			tables[key.pid] = table
		}
		list, at := table[key.op], int(key.label)+1
		if at >= len(list) {
			list = append(list, make([]*Duration, at+1-len(list))...)
			table[key.op] = list
		}
		list[at] = d
	}
	return tables
}

// of returns the estimated duration of operations with a label; nil: there is none.
func (m *meanTable) of(key labelKey) *Duration {
	if m == nil || int(key.label)+1 >= len(m[key.op]) {
		return nil
	}
	return m[key.op][key.label+1]
}
