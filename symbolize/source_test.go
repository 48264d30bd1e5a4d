package symbolize

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
)

// TestSourceAgreesWithObject checks that Source finds the same functions as the symbol table.
func TestSourceAgreesWithObject(t *testing.T) {
	testclass.Unit(t)
	path := compile(t, "functions.c", "program", "-g", "-Wl,--build-id=sha1")
	o := openObject(t, path)
	s, err := OpenSource(path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if s.BuildID() != o.BuildID() || s.BuildID() == "" {
		t.Errorf("BuildID() = %q, that of the object is %q", s.BuildID(), o.BuildID())
	}
	for _, name := range []string{"main", "local_function"} {
		symbol, ok := o.Find(name)
		if !ok {
			t.Fatalf("%s is not in the symbol table", name)
		}
		frames, err := s.Frames(symbol.Start)
		if err != nil || len(frames) != 1 {
			t.Fatalf("Frames(%s) = %v, %v", name, frames, err)
		}
		f := frames[0]
		if f.Func != name || filepath.Base(f.File) != "functions.c" || f.Line == 0 || f.Inlined {
			t.Errorf("Frames(%s) = %+v", name, f)
		}
	}
	if frames, err := s.Frames(1); frames != nil || err != nil {
		t.Errorf("Frames(1) = %v, %v", frames, err)
	}
}

func TestFileWithoutDebugInfo(t *testing.T) {
	testclass.Unit(t)
	raw := example(t)
	if _, err := NewSource(bytes.NewReader(raw), int64(len(raw))); !errors.Is(err, ErrNoDebugInfo) {
		t.Errorf("NewSource: %v", err)
	}
	if _, err := OpenSource("missing"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("OpenSource: %v", err)
	}
}
