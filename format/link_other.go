//go:build !linux

package format

import (
	"errors"
	"os"
)

// linkFile returns an error: captures are made by the recorder, which needs Linux.
func linkFile(_, _ *os.Root, _ string) error { return errors.ErrUnsupported }
