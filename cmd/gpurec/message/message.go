// Package message prints notes, warnings, errors and hints to standard error.
//
// Every command follows these rules:
//   - Reports and exported data go to standard output, and nothing else.
//   - A message is one line on standard error. It starts with "gpurec: ", is in lower case, and has no
//     final period.
//   - An error describes the problem and names the file, process or flag.
//   - A hint is a command to paste.
//   - A warning describes missing or unreliable data in the result.
//   - Other packages return errors. Only cmd/gpurec adds hints.
package message

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"unicode"
)

// Exit codes of gpurec. With "record -- COMMAND", gpurec exits with the exit status of COMMAND
// instead.
const (
	ExitOK     = 0
	ExitFailed = 1
	ExitUsage  = 2 // the command line is wrong
	ExitFailOn = 3 // the condition of --fail-on holds
)

// UsageError describes a wrong command line.
type UsageError struct {
	Err  error
	Hint string // a command to paste, "" for none
}

// Error returns the text of Err, without the hint.
func (e *UsageError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *UsageError) Unwrap() error { return e.Err }

// Usagef returns a *UsageError with a hint and a formatted text. The format may have %w.
func Usagef(hint, format string, args ...any) error {
	return &UsageError{Err: fmt.Errorf(format, args...), Hint: hint}
}

// HintedError is an error with a hint: a command that avoids or explains the error.
type HintedError struct {
	Err  error
	Hint string // a command to paste
}

// WithHint returns a *HintedError.
func WithHint(err error, hint string) error { return &HintedError{Err: err, Hint: hint} }

// Error returns the text of Err, without the hint.
func (e *HintedError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *HintedError) Unwrap() error { return e.Err }

// ExitStatus is an error that makes gpurec exit with Code, without an error message.
type ExitStatus struct{ Code int }

// Error returns "exit status" and the code.
func (e *ExitStatus) Error() string { return fmt.Sprintf("exit status %d", e.Code) }

// Printable returns r, or '?' for a rune that controls a terminal or changes the text direction.
// strings.Map(Printable, text) makes text from untrusted processes safe to print.
func Printable(r rune) rune {
	if !unicode.IsPrint(r) {
		return '?'
	}
	return r
}

// Notef prints a formatted note as one line on standard error.
func Notef(format string, args ...any) { printMessageLine("", fmt.Sprintf(format, args...)) }

// Warningf prints a formatted warning as one line on standard error.
func Warningf(format string, args ...any) {
	printMessageLine("warning: ", fmt.Sprintf(format, args...))
}

// Hintf prints a formatted hint, a command to paste, as one line on standard error.
func Hintf(format string, args ...any) { printMessageLine("hint: ", fmt.Sprintf(format, args...)) }

// PrintError prints each line of an error, and the hint of a UsageError or HintedError.
func PrintError(err error) {
	for _, line := range strings.Split(err.Error(), "\n") {
		printMessageLine("error: ", line)
	}
	var usage *UsageError
	var hinted *HintedError
	switch {
	case errors.As(err, &usage) && usage.Hint != "":
		Hintf("%s", usage.Hint)
	case errors.As(err, &hinted) && hinted.Hint != "":
		Hintf("%s", hinted.Hint)
	}
}

func printMessageLine(kind, text string) {
	fmt.Fprintf(os.Stderr, "gpurec: %s%s\n", kind, strings.Map(Printable, text))
}
