package analyze

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/output"
	"github.com/spf13/pflag"
	"golang.org/x/term"
)

// outputFlags holds the flags for the output file of an export.
type outputFlags struct {
	path  string
	force bool
	flag  string // the flag that sets path; "" for -o
}

// addFlags adds -o and --force. suffix is the file name extension of the default output.
func (o *outputFlags) addFlags(flags *pflag.FlagSet, suffix string) {
	flags.StringVarP(&o.path, "output", "o", "", "write to `FILE`; - for standard output (default: recording name "+
		"with "+suffix+")")
	flags.BoolVar(&o.force, "force", false, "replace FILE if it exists")
}

// writeFile creates the output file, calls fill to write it, and returns its path. Under sudo the
// file belongs to the user who called sudo. The file appears at its path only when it is complete.
// On an error, an existing file at the path stays unchanged.
func (o *outputFlags) writeFile(recording, suffix string, fill func(io.Writer) error) (path string, err error) {
	if o.path == "-" {
		if term.IsTerminal(int(os.Stdout.Fd())) {
			return "", message.Usagef(
				"gpurec analyze … -o FILE",
				"the output is binary: write it to a file, not to a terminal",
			)
		}
		return "standard output", fill(os.Stdout)
	}
	path = o.outputPath(recording, suffix)
	file, err := o.createFile(path)
	if err != nil {
		return "", err
	}
	if err := fill(file); err != nil {
		file.Discard()
		return "", fmt.Errorf("write %s: %w", path, err)
	}
	if err := file.Commit(); err != nil {
		return "", fmt.Errorf("write %s: %w", path, o.explainError(err))
	}
	return path, nil
}

// outputPath returns the path of the output file: that of -o, or the recording's path with suffix.
func (o *outputFlags) outputPath(recording, suffix string) string {
	if o.path != "" {
		return o.path
	}
	return strings.TrimSuffix(strings.TrimSuffix(recording, format.SegmentSuffix), ".parquet") + suffix
}

// createFile creates the output file as a temporary file. Commit moves it to path. Under sudo the
// file belongs to the user who called sudo.
func (o *outputFlags) createFile(path string) (*output.File, error) {
	file, err := output.Create(path, output.Options{Force: o.force, Owner: output.SudoOwner()})
	if err != nil {
		return nil, o.explainError(err)
	}
	return file, nil
}

// checkPath returns the error that create would return for path, and creates no file.
func (o *outputFlags) checkPath(path string) error {
	out, err := output.Open(path, output.Options{Force: o.force, Owner: output.SudoOwner()})
	if err != nil {
		return o.explainError(err)
	}
	return out.Close()
}

// explainError adds a hint to an error about the output file: a flag or command that avoids the
// error.
func (o *outputFlags) explainError(err error) error {
	flag := cmp.Or(o.flag, "-o")
	if refused := message.ExplainOutput(flag, flag == "-o", err); refused != nil {
		return refused
	}
	var path *fs.PathError
	if errors.Is(err, output.ErrExists) && errors.As(err, &path) {
		return message.WithHint(
			fmt.Errorf("%s exists", path.Path),
			"run the same command with --force, or with "+flag+" OTHER",
		)
	}
	return cmp.Or(message.ExplainFolder(flag, err), err)
}
