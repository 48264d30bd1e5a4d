package timeline

import "cmp"

// Both runs two functions at a time.
func Both(a, b func() error) error {
	done := make(chan error, 1)
	go func() { done <- a() }()
	err := b()
	return cmp.Or(<-done, err)
}
