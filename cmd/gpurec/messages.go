package main

// What is printed where, for every command:
//   - standard output is data that was asked for, and nothing else;
//   - everything else goes to standard error, one line each, prefixed "gpurec: ",
//     lower case, without a final period;
//   - an error says what is wrong and names the file, pid or flag; a hint is a
//     command to paste; a warning says what the result is worth;
//   - packages say what is wrong, this folder says what to do about it.

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"unicode"

	"github.com/gpurec/gpurec/format"
)

const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
	exitFailOn = 3
)

// usageError is a wrong command line: exit code 2.
type usageError struct {
	err  error
	hint string
}

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// usagef returns a usage error with a hint to paste; "" is none.
func usagef(hint, format string, args ...any) error {
	return &usageError{err: fmt.Errorf(format, args...), hint: hint}
}

// hintedError is an error with the command that gets around it.
type hintedError struct {
	err  error
	hint string
}

func (e *hintedError) Error() string { return e.err.Error() }
func (e *hintedError) Unwrap() error { return e.err }

// exitStatus ends the program with a code and no further message.
type exitStatus struct{ code int }

func (e *exitStatus) Error() string { return fmt.Sprintf("exit status %d", e.code) }

func say(kind, text string) {
	text = strings.Map(printable, text)
	fmt.Fprintf(os.Stderr, "gpurec: %s%s\n", kind, text)
}

// printable replaces what steers a terminal or turns text around: names come from processes
// we do not trust.
func printable(r rune) rune {
	if !unicode.IsPrint(r) {
		return '?'
	}
	return r
}

func notef(format string, args ...any)    { say("", fmt.Sprintf(format, args...)) }
func warningf(format string, args ...any) { say("warning: ", fmt.Sprintf(format, args...)) }
func hintf(format string, args ...any)    { say("hint: ", fmt.Sprintf(format, args...)) }

// printError prints an error and, if it has one, its hint.
func printError(err error) {
	for _, line := range strings.Split(err.Error(), "\n") {
		say("error: ", line)
	}
	var usage *usageError
	var hinted *hintedError
	switch {
	case errors.As(err, &usage) && usage.hint != "":
		hintf("%s", usage.hint)
	case errors.As(err, &hinted) && hinted.hint != "":
		hintf("%s", hinted.hint)
	}
}

// explainOpen turns an error of format.Open into a sentence and a hint.
func explainOpen(path string, err error) error {
	var version *format.VersionError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, serr := os.Stat(path + format.SegmentSuffix); serr == nil {
			return &hintedError{fmt.Errorf("%s does not exist, but an unfinished recording of that name does", path),
				"gpurec recover " + path + format.SegmentSuffix}
		}
		return &hintedError{fmt.Errorf("%s does not exist", path), "sudo gpurec record -p PID -d 10s -o " + path}
	case errors.Is(err, fs.ErrPermission):
		return &hintedError{fmt.Errorf("%s: permission denied", path), "ls -l " + path}
	case errors.As(err, &version):
		return fmt.Errorf("%s %w; a newer gpurec is needed", path, version)
	}
	for _, known := range []error{format.ErrEmpty, format.ErrNotParquet, format.ErrTruncated, format.ErrNotRecording, format.ErrNoSegments} {
		if errors.Is(err, known) {
			return fmt.Errorf("%s %w", path, known)
		}
	}
	return fmt.Errorf("%s cannot be read: %w", path, err)
}
