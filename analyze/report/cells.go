package report

func Least(v any, w float64) any {
	if old, ok := v.(float64); ok && old < w {
		return old
	}
	return w
}

func Most(v any, w float64) any {
	if old, ok := v.(float64); ok && old > w {
		return old
	}
	return w
}
