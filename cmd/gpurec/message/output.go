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

// ExplainOutput says why the file that a flag names is refused, and what to type instead. It
// returns nil if the error is about something else. Without pipes the flag knows no "-".
func ExplainOutput(flag string, pipes bool, err error) error {
	var refused *output.Error
	if !errors.As(err, &refused) {
		return nil
	}
	other := "the same command with " + flag + " OTHER"
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
		return WithHint(fmt.Errorf("%w: %s replaces no file of another user", refused, flag), other)
	case output.ForeignFolder:
		return WithHint(refused, flag+" "+safePlace(refused.Path))
	}
	return WithHint(fmt.Errorf("%w: %s needs a new name or a regular file", refused, flag), other)
}

// safePlace is a path of the same name in a folder that is no other user's.
func safePlace(path string) string {
	path = strings.TrimSuffix(path, format.SegmentSuffix)
	if filepath.Dir(path) == "/tmp" {
		return "$HOME/" + filepath.Base(path)
	}
	return "/tmp/" + filepath.Base(path)
}

// ExplainFolder says that an output's folder is missing or cannot be written to, and what to type.
// It returns nil if the error is about something else.
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
		return WithHint(fmt.Errorf("%s is no folder", folder), flag+" "+safePlace(path.Path))
	case errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS):
		return WithHint(fmt.Errorf("cannot write to %s: %w", folder, path.Err), flag+" "+safePlace(path.Path))
	}
	return nil
}
