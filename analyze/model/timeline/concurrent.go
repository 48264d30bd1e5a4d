package timeline

import "cmp"

// RunParallel runs a and b concurrently, and returns the first non-nil error, that of a first.
func RunParallel(a, b func() error) error {
	done := make(chan error, 1)
	go func() { done <- a() }()
	err := b()
	return cmp.Or(<-done, err)
}
