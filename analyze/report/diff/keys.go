package diff

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/report"
)

// defaultKeyNames are the keys of columns that identify a row, for tables without Keys. They
// exclude process ids, thread ids and handles, because these differ between recordings.
var defaultKeyNames = []string{
	"name", "kind", "call", "kernel", "function", "module", "library", "owner", "site", "stack", "thread", "stream",
	"size", "size_bucket", "direction", "copy_kind", "memory_kind", "device", "device_name", "metric", "reason",
	"via",
	"status", "class", "check", "result", "result_name", "process", "event", "pool", "rule",
	"rank", "job", "container", "pod", "cgroup",
}

// keyColumns returns the columns that identify a row.
func keyColumns(t *report.Table) (list []report.Column) {
	names := t.Keys
	if names == nil {
		names = defaultKeyNames
	}
	for _, c := range t.Columns {
		if slices.Contains(names, c.Key) {
			list = append(list, c)
		}
	}
	return list
}

// commonKeyColumns returns the keys of the keyColumns that another table has too. For example, only
// one of the recordings may have ranks.
func commonKeyColumns(t, other *report.Table) (keys []string) {
	for _, c := range keyColumns(t) {
		if report.ColumnIndex(other, c.Key) >= 0 {
			keys = append(keys, c.Key)
		}
	}
	return keys
}

// isTableComparable reports whether a table has key columns and number columns.
func isTableComparable(t *report.Table) bool {
	return len(keyColumns(t)) > 0 &&
		slices.ContainsFunc(t.Columns, func(c report.Column) bool { return isMeasureColumn(&c) })
}

// rowPair has the matching rows of both recordings. One of the rows may be nil.
type rowPair struct{ before, after *report.Row }

// pairRows returns the pairs of rows of two tables with equal keys. Rows with the same key are
// paired in order.
func pairRows(a, b *report.Table) []rowPair {
	index := make(map[string][]int)
	var list []rowPair
	keysOfA, keysOfB := commonKeyColumns(a, b), commonKeyColumns(b, a)
	for i := range a.Rows {
		key := rowKey(a, &a.Rows[i], keysOfA)
		index[key] = append(index[key], len(list))
		list = append(list, rowPair{before: &a.Rows[i]})
	}
	for i := range b.Rows {
		key := rowKey(b, &b.Rows[i], keysOfB)
		if at := index[key]; len(at) > 0 {
			list[at[0]].after, index[key] = &b.Rows[i], at[1:]
			continue
		}
		list = append(list, rowPair{after: &b.Rows[i]})
	}
	return list
}

// rowKey returns the key of a row as text. Stack ids and process ids differ between recordings, so
// it uses the frames of the stack and the name of the process or thread instead.
func rowKey(t *report.Table, r *report.Row, keys []string) string {
	var b strings.Builder
	for _, key := range keys {
		text := fmt.Sprint(t.Cell(r, key))
		switch key {
		case "stack":
			if at := strings.LastIndex(text, " #"); at >= 0 {
				text = text[:at]
			}
			for _, f := range report.VisibleFrames(r.Stack) {
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
