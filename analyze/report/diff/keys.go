package diff

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/report"
)

// keyNames are the columns that say what a row is about where a table does not declare its keys. Numbers of processes, threads
// and handles are not among them: they are others in every recording.
var keyNames = []string{"name", "kind", "call", "kernel", "function", "module", "library", "owner", "site", "stack", "thread", "stream", "size", "size_bucket",
	"direction", "copy_kind", "memory_kind", "device", "device_name", "metric", "reason", "status", "class", "check", "result", "result_name", "process", "event", "pool", "rule",
	"rank", "job", "container", "pod", "cgroup"}

// keyColumns are the indices of the columns that say what a row is about.
func keyColumns(t *report.Table) (list []int) {
	names := t.Keys
	if names == nil {
		names = keyNames
	}
	for i, c := range t.Columns {
		if slices.Contains(names, c.Key) {
			list = append(list, i)
		}
	}
	return list
}

// keysIn is keyColumns without those that the other table lacks: only one recording may have ranks.
func keysIn(t *report.Table, other *report.Table) []int {
	return slices.DeleteFunc(keyColumns(t), func(i int) bool {
		return report.ColumnOf(other, t.Columns[i].Key) < 0
	})
}

// isComparable reports whether rows of the table can be paired, and have numbers.
func isComparable(t *report.Table) bool {
	return len(keyColumns(t)) > 0 && slices.ContainsFunc(t.Columns, func(c report.Column) bool { return isMeasure(&c) })
}

// pair is a row of two recordings; one of them may have none.
type pair struct{ before, after *report.Row }

// pairs finds counterparts: rows with equal keys, the first with the first.
func pairs(a, b *report.Table) []pair {
	index := make(map[string][]int)
	var list []pair
	keysOfA, keysOfB := keysIn(a, b), keysIn(b, a)
	for i := range a.Rows {
		key := keyOf(a, &a.Rows[i], keysOfA)
		index[key] = append(index[key], len(list))
		list = append(list, pair{before: &a.Rows[i]})
	}
	for i := range b.Rows {
		key := keyOf(b, &b.Rows[i], keysOfB)
		if at := index[key]; len(at) > 0 {
			list[at[0]].after, index[key] = &b.Rows[i], at[1:]
			continue
		}
		list = append(list, pair{after: &b.Rows[i]})
	}
	return list
}

// keyOf is what a row is about. The number of a stack or process is another one in every recording: instead of it counts what
// frames the stack has, and what the process or thread is called.
func keyOf(t *report.Table, r *report.Row, keys []int) string {
	var b strings.Builder
	for _, i := range keys {
		text := fmt.Sprint(r.Cells[i])
		switch t.Columns[i].Key {
		case "stack":
			if at := strings.LastIndex(text, " #"); at >= 0 {
				text = text[:at]
			}
			for _, f := range report.Named(r.Stack) {
				text += "\x00" + f.Func
			}
		case "pid", "thread":
			if number, name, ok := strings.Cut(text, " "); ok && strings.Trim(number, "0123456789/") == "" {
				text = name
			}
		case "stream":
			if strings.HasPrefix(text, "0x") {
				text = "(a stream)"
			}
		}
		b.WriteString(text)
		b.WriteByte(1)
	}
	return b.String()
}
