package message

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/output"
	"github.com/gpurec/gpurec/internal/testclass"
)

// printed returns the text that print writes to standard error.
func printed(t *testing.T, print func()) string {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	before := os.Stderr
	os.Stderr = w
	print()
	os.Stderr = before
	w.Close()
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestPrintError(t *testing.T) {
	testclass.Unit(t)
	for want, err := range map[string]error{
		"gpurec: error: it fails\n":                               errors.New("it fails"),
		"gpurec: error: one\ngpurec: error: two\n":                errors.Join(errors.New("one"), errors.New("two")),
		"gpurec: error: it fails\ngpurec: hint: do that\n":        WithHint(errors.New("it fails"), "do that"),
		"gpurec: error: do: it fails\ngpurec: hint: do that\n":    fmt.Errorf("do: %w", WithHint(errors.New("it fails"), "do that")),
		"gpurec: error: --x 7: wrong\ngpurec: hint: gpurec --x\n": Usagef("gpurec --x", "--x %d: wrong", 7),
		"gpurec: error: --x: wrong\n":                             Usagef("", "--x: wrong"),
		"gpurec: error: evil?[2J?\n":                              errors.New("evil\x1b[2J\u202e"),
	} {
		if got := printed(t, func() { PrintError(err) }); got != want {
			t.Errorf("PrintError(%q) prints %q, want %q", err, got, want)
		}
	}
}

func TestExplainOpen(t *testing.T) {
	testclass.Unit(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "r.parquet")
	explained := func(err error) (text, hint string) {
		err = ExplainOpen(path, err)
		var hinted *HintedError
		if errors.As(err, &hinted) {
			hint = hinted.Hint
		}
		return err.Error(), hint
	}
	missing := &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	if text, hint := explained(missing); text != path+" does not exist" || hint != "sudo gpurec record -p PID -d "+
		"10s -o "+path {
		t.Errorf("missing: %q, hint %q", text, hint)
	}
	if err := os.Mkdir(path+format.SegmentSuffix, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, hint := explained(missing); hint != "gpurec recover "+path+format.SegmentSuffix {
		t.Errorf("missing, with segments: hint %q", hint)
	}
	if text, _ := explained(fmt.Errorf("open: %w", format.ErrTruncated)); text != path+" "+format.ErrTruncated.Error() {
		t.Errorf("truncated: %q", text)
	}
	if text, _ := explained(&format.VersionError{Got: 9, Max: 1}); text != path+" is format 9, this gpurec reads up "+
		"to 1; a newer gpurec is needed" {
		t.Errorf("newer: %q", text)
	}
}

func TestExplainOutput(t *testing.T) {
	testclass.Unit(t)
	for _, c := range []struct {
		refused output.Error
		pipes   bool
		hint    string
	}{
		{output.Error{Path: "d", Problem: output.IsFolder, Description: "is a folder"}, true, "-o d/NAME"},
		{output.Error{Path: "/dev/sda", Problem: output.NotRegular, Description: "is a device"}, true, "-o - > /dev/sda"},
		{output.Error{Path: "/dev/sda", Problem: output.NotRegular, Description: "is a device"}, false, "run the same command " +
			"with -o OTHER"},
		{output.Error{Path: "l", Problem: output.IsLink, Description: "is a symbolic link", Target: "t"}, false, "-o t --force"},
		{output.Error{Path: "/tmp/r", Problem: output.ForeignFolder, Description: "is not safe"}, false, "-o $HOME/r"},
		{output.Error{Path: "/srv/r", Problem: output.ForeignFolder, Description: "is not safe"}, false, "-o /tmp/r"},
	} {
		err := ExplainOutput("-o", c.pipes, fmt.Errorf("create: %w", &c.refused))
		var hinted *HintedError
		if !errors.As(err, &hinted) || hinted.Hint != c.hint {
			t.Errorf("%v: %v, want the hint %q", &c.refused, err, c.hint)
		}
	}
	if err := ExplainOutput("-o", true, errors.New("something else")); err != nil {
		t.Errorf("another error: %v", err)
	}
}
