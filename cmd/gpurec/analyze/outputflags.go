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

// outputFlags say where a file for another tool goes.
type outputFlags struct {
	path  string
	force bool
	flag  string // that sets path, if it is not -o
}

func (o *outputFlags) add(flags *pflag.FlagSet, suffix string) {
	flags.StringVarP(&o.path, "output", "o", "", "write to `FILE`; - is standard output (default: the recording's "+
		"name with "+suffix+")")
	flags.BoolVar(&o.force, "force", false, "replace FILE if it exists")
}

// write creates the file, which belongs to the user behind sudo, and has it filled. The file
// gets its name when it is complete; if that fails, what was there stays. It returns the name.
func (o *outputFlags) write(recording, suffix string, fill func(io.Writer) error) (path string, err error) {
	if o.path == "-" {
		if term.IsTerminal(int(os.Stdout.Fd())) {
			return "", message.Usagef("gpurec analyze … -o FILE", "the output is binary: no terminal can show it")
		}
		return "standard output", fill(os.Stdout)
	}
	path = o.name(recording, suffix)
	file, err := o.create(path)
	if err != nil {
		return "", err
	}
	if err := fill(file); err != nil {
		file.Discard()
		return "", fmt.Errorf("write %s: %w", path, err)
	}
	if err := file.Commit(); err != nil {
		return "", fmt.Errorf("write %s: %w", path, o.explain(err))
	}
	return path, nil
}

// name is the file's name: the one that was asked for, or the recording's with a suffix.
func (o *outputFlags) name(recording, suffix string) string {
	if o.path != "" {
		return o.path
	}
	return strings.TrimSuffix(strings.TrimSuffix(recording, format.SegmentSuffix), ".parquet") + suffix
}

// create creates a file for the user behind sudo. What is at path is replaced by Commit.
func (o *outputFlags) create(path string) (*output.File, error) {
	file, err := output.Create(path, output.Options{Force: o.force, Owner: output.SudoOwner()})
	if err != nil {
		return nil, o.explain(err)
	}
	return file, nil
}

// check returns the error that create would return for what is at path, and changes nothing.
func (o *outputFlags) check(path string) error {
	out, err := output.Open(path, output.Options{Force: o.force, Owner: output.SudoOwner()})
	if err != nil {
		return o.explain(err)
	}
	return out.Close()
}

// explain says why the file cannot be written, and what to type instead.
func (o *outputFlags) explain(err error) error {
	flag := cmp.Or(o.flag, "-o")
	if refused := message.ExplainOutput(flag, flag == "-o", err); refused != nil {
		return refused
	}
	var path *fs.PathError
	if errors.Is(err, output.ErrExists) && errors.As(err, &path) {
		return message.WithHint(
			fmt.Errorf("%s exists", path.Path),
			"the same command with --force, or with "+flag+" OTHER",
		)
	}
	return cmp.Or(message.ExplainFolder(flag, err), err)
}
