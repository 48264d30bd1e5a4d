// Package message prints what gpurec says on standard error, and explains errors.
//
// For every command:
//   - standard output has the data that was asked for, and nothing else;
//   - everything else goes to standard error, one line each, prefixed "gpurec: ", in lower case,
//     without a final period;
//   - an error says what is wrong and names the file, pid or flag; a hint is a command to paste; a
//     warning says what the result is worth;
//   - other packages say what is wrong, cmd/gpurec says what to do about it.
package message

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"unicode"
)

// Exit codes of gpurec. After record -- COMMAND, gpurec exits with the command's status instead.
const (
	ExitOK     = 0
	ExitFailed = 1
	ExitUsage  = 2 // the command line is wrong
	ExitFailOn = 3 // a condition of --fail-on holds
)

// UsageError is a wrong command line. Hint is a command to paste, "" for none.
type UsageError struct {
	Err  error
	Hint string
}

func (e *UsageError) Error() string { return e.Err.Error() }
func (e *UsageError) Unwrap() error { return e.Err }

// Usagef returns a UsageError.
func Usagef(hint, format string, args ...any) error {
	return &UsageError{Err: fmt.Errorf(format, args...), Hint: hint}
}

// HintedError is an error with a command to paste that avoids it.
type HintedError struct {
	Err  error
	Hint string
}

// WithHint returns a HintedError.
func WithHint(err error, hint string) error { return &HintedError{Err: err, Hint: hint} }

func (e *HintedError) Error() string { return e.Err.Error() }
func (e *HintedError) Unwrap() error { return e.Err }

// ExitStatus ends gpurec with a code and without an error message.
type ExitStatus struct{ Code int }

func (e *ExitStatus) Error() string { return fmt.Sprintf("exit status %d", e.Code) }

// Printable returns a rune, or '?' for one that controls a terminal or changes the direction of
// text: names come from processes that are not trusted. Use it with strings.Map.
func Printable(r rune) rune {
	if !unicode.IsPrint(r) {
		return '?'
	}
	return r
}

// Notef prints a note.
func Notef(format string, args ...any) { printLine("", fmt.Sprintf(format, args...)) }

// Warningf prints a warning.
func Warningf(format string, args ...any) { printLine("warning: ", fmt.Sprintf(format, args...)) }

// Hintf prints a hint: a command to paste.
func Hintf(format string, args ...any) { printLine("hint: ", fmt.Sprintf(format, args...)) }

// PrintError prints an error and its hint, if it has one.
func PrintError(err error) {
	for _, line := range strings.Split(err.Error(), "\n") {
		printLine("error: ", line)
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

func printLine(kind, text string) {
	fmt.Fprintf(os.Stderr, "gpurec: %s%s\n", kind, strings.Map(Printable, text))
}
