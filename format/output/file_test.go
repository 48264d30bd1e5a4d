package output

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
)

// TestFile checks that a file gets its name only when it is complete. If writing fails, the old file
// remains.
func TestFile(t *testing.T) {
	testclass.Unit(t)
	path := filepath.Join(t.TempDir(), "out")
	write := func(text string, force, commit bool) error {
		file, err := Create(path, Options{Force: force})
		if err != nil {
			return err
		}
		_, err = file.WriteString(text)
		if err != nil || !commit {
			file.Discard()
			return err
		}
		return file.Commit()
	}
	for _, step := range []struct {
		text          string
		force, commit bool
		err           error
		want          string
	}{
		{"0", false, false, nil, ""}, {"1", false, true, nil, "1"}, {"2", false, true, ErrExists, "1"}, {"3", true, false, nil, "1"}, {"4", true, true, nil, "4"},
	} {
		if err := write(step.text, step.force, step.commit); !errors.Is(err, step.err) {
			t.Errorf("%+v: %v", step, err)
		}
		if text, _ := os.ReadFile(path); string(text) != step.want { // empty if the file does not exist
			t.Errorf("%+v: the file is %q", step, text)
		}
		if files, err := filepath.Glob(path + "*"); err != nil || len(files) > 1 {
			t.Errorf("%+v: %v, %v", step, files, err)
		}
	}
}
