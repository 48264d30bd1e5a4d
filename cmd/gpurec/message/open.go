package message

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/gpurec/gpurec/format"
)

// ExplainOpen converts an error of format.Open for path to an error that names path. It adds a hint
// where a command helps.
func ExplainOpen(path string, err error) error {
	var version *format.VersionError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		segments := path + format.SegmentSuffix
		if _, serr := os.Stat(segments); serr == nil {
			return WithHint(
				fmt.Errorf("%s does not exist, but its unfinished recording does", path),
				"gpurec recover "+segments)
		}
		return WithHint(
			fmt.Errorf("%s does not exist", path), "sudo gpurec record -p PID -d 10s -o "+path)
	case errors.Is(err, fs.ErrPermission):
		return WithHint(fmt.Errorf("%s: permission denied", path), "ls -l "+path)
	case errors.As(err, &version):
		return fmt.Errorf("%s %w; a newer gpurec is needed", path, version)
	}
	for _, known := range []error{
		format.ErrEmpty, format.ErrNotParquet, format.ErrTruncated, format.ErrNotRecording,
		format.ErrNoSegments,
	} {
		if errors.Is(err, known) {
			return fmt.Errorf("%s %w", path, known)
		}
	}
	return fmt.Errorf("%s cannot be read: %w", path, err)
}
