package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format"
	"github.com/spf13/pflag"
	"golang.org/x/term"
)

// outputFlags say where a file for another tool goes.
type outputFlags struct {
	path  string
	force bool
}

func (o *outputFlags) add(flags *pflag.FlagSet, suffix string) {
	flags.StringVarP(&o.path, "output", "o", "", "write to `FILE`; - is standard output (default: the recording's name with "+suffix+")")
	flags.BoolVar(&o.force, "force", false, "replace FILE if it exists")
}

// write creates the file, which belongs to the user behind sudo, and has it filled.
// What was begun is removed if that fails. It returns the file's name.
func (o *outputFlags) write(recording, suffix string, fill func(io.Writer) error) (path string, err error) {
	if o.path == "-" {
		if term.IsTerminal(int(os.Stdout.Fd())) {
			return "", usagef("gpurec analyze … -o FILE", "the output is binary: no terminal can show it")
		}
		return "standard output", fill(os.Stdout)
	}
	path = o.name(recording, suffix)
	file, err := o.create(path)
	if err != nil {
		return "", err
	}
	if err := errors.Join(fill(file), file.Close()); err != nil {
		os.Remove(path)
		return "", fmt.Errorf("write %s: %w", path, err)
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

// create creates a file for the user behind sudo. One that --force replaces is removed
// first: a link is not followed, and nobody has the new file open already.
func (o *outputFlags) create(path string) (*os.File, error) {
	mode := os.O_CREATE | os.O_WRONLY | os.O_EXCL
	if info, err := os.Lstat(path); o.force && err == nil {
		if info.Mode().IsRegular() || info.Mode()&os.ModeSymlink != 0 {
			if err := os.Remove(path); err != nil {
				return nil, err
			}
		} else {
			mode = os.O_WRONLY // a pipe or a device
		}
	}
	file, err := os.OpenFile(path, mode, 0o600)
	if errors.Is(err, os.ErrExist) {
		return nil, &hintedError{fmt.Errorf("%s exists", path), "the same command with --force, or with -o OTHER"}
	}
	if err != nil {
		return nil, err
	}
	if owner := sudoOwner(); owner.Set {
		_ = file.Chown(owner.UID, owner.GID) // the file is of use without it
	}
	return file, nil
}

// exported ends a command that wrote a file: --fail-on sees the recording's quality.
func (f *analyzeFlags) exported(r *analyze.Report) error {
	failed, err := f.failed(r)
	if err != nil {
		return err
	}
	return f.finish(r, failed)
}
