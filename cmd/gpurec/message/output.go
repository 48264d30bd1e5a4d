package message

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/output"
)

// ExplainOutput adds a hint to an *output.Error: a value of flag that would be accepted. It returns
// nil for other errors. pipes is true if flag accepts "-" for standard output.
func ExplainOutput(flag string, pipes bool, err error) error {
	var refused *output.Error
	if !errors.As(err, &refused) {
		return nil
	}
	other := "run the same command with " + flag + " OTHER"
	switch refused.Problem {
	case output.IsFolder:
		other = flag + " " + filepath.Join(refused.Path, "NAME")
	case output.NotRegular:
		if pipes {
			other = flag + " - > " + refused.Path
		}
	case output.IsLink:
		if refused.Target != "" {
			other = fmt.Sprintf("%s %s --force", flag, refused.Target)
		} else if pipes {
			other += ", or with " + flag + " - for standard output"
		}
	case output.ForeignFile:
		return WithHint(fmt.Errorf("%w: %s does not replace files of other users", refused, flag), other)
	case output.ForeignFolder:
		return WithHint(refused, flag+" "+suggestSafePath(refused.Path))
	}
	return WithHint(fmt.Errorf("%w: %s needs a new name or a regular file", refused, flag), other)
}

// suggestSafePath returns a path with the same file name in $HOME or /tmp: a folder where other
// users cannot replace the file.
func suggestSafePath(path string) string {
	path = strings.TrimSuffix(path, format.SegmentSuffix)
	if filepath.Dir(path) == "/tmp" {
		return "$HOME/" + filepath.Base(path)
	}
	return "/tmp/" + filepath.Base(path)
}

// ExplainFolder adds a hint to an error about the folder of an output file: the folder is missing
// or not writable. It returns nil for other errors. flag names the flag of the output file.
func ExplainFolder(flag string, err error) error {
	var path *fs.PathError
	if !errors.As(err, &path) {
		return nil
	}
	folder := filepath.Dir(path.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return WithHint(fmt.Errorf("folder %s does not exist", folder), "mkdir -p "+folder)
	case errors.Is(err, syscall.ENOTDIR):
		return WithHint(fmt.Errorf("%s is not a folder", folder), flag+" "+suggestSafePath(path.Path))
	case errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS):
		return WithHint(fmt.Errorf("cannot write to %s: %w", folder, path.Err), flag+" "+suggestSafePath(path.Path))
	}
	return nil
}
