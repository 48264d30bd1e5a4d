package report

import "cmp"

// AsNumber returns a cell as a number. ok is false if the cell is neither an int64 nor a float64.
func AsNumber(v any) (n float64, ok bool) {
	switch v := v.(type) {
	case int64:
		return float64(v), true
	case float64:
		return v, true
	}
	return 0, false
}

// CompareCells compares two cells of a column in the order of tables: large numbers first, text
// from a to z, nil last. Cells of different or other types compare as equal.
func CompareCells(a, b any) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return 1
	case b == nil:
		return -1
	}
	switch a := a.(type) {
	case int64:
		if b, ok := b.(int64); ok {
			return cmp.Compare(b, a)
		}
	case float64:
		if b, ok := b.(float64); ok {
			return cmp.Compare(b, a)
		}
	case string:
		if b, ok := b.(string); ok {
			return cmp.Compare(a, b)
		}
	}
	return 0
}

// CompareBools orders false before true.
func CompareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// MinCell returns the smaller of a cell and w, as a float64. It returns w if the cell is nil.
func MinCell(v any, w float64) any {
	if old, ok := v.(float64); ok && old < w {
		return old
	}
	return w
}

// MaxCell returns the larger of a cell and w, as a float64. It returns w if the cell is nil.
func MaxCell(v any, w float64) any {
	if old, ok := v.(float64); ok && old > w {
		return old
	}
	return w
}
