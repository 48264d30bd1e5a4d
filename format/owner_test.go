//go:build linux

package format

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/gpurec/gpurec/format/output"
	"github.com/gpurec/gpurec/internal/testclass"
)

// statOf returns owner and mode of a file.
func statOf(t *testing.T, path string) (uid uint32, mode os.FileMode) {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Uid, info.Mode()
}

func TestFilesBelongToTheirOwner(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	if os.Getuid() != 0 {
		testclass.Missing(t, "only root can give files away")
	}
	path := filepath.Join(t.TempDir(), "r.parquet")
	defer syscall.Umask(syscall.Umask(0)) // the mode of new files must not depend on the umask
	w, err := Create(path, Options{Owner: Owner{UID: 65534, GID: 65534, Set: true}})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Write(ClassFact, noteRows()), w.Rotate(Meta{}), w.Flush()); err != nil {
		t.Fatal(err)
	}
	segments, err := filepath.Glob(filepath.Join(w.Dir(), "*"))
	if err != nil || len(segments) != 1 {
		t.Fatal(segments, err)
	}
	for name, want := range map[string]os.FileMode{w.Dir(): os.ModeDir | 0o700, segments[0]: 0o600} {
		if uid, mode := statOf(t, name); uid != 65534 || mode != want {
			t.Errorf("%s belongs to %d, %v", name, uid, mode)
		}
	}
	if err := w.Finish(Meta{}); err != nil {
		t.Fatal(err)
	}
	if uid, mode := statOf(t, path); uid != 65534 || mode != 0o600 {
		t.Errorf("the recording belongs to %d, %v", uid, mode)
	}
}

// TestReplacedSegmentFolder lets the segment folder's owner replace it by another folder or a link.
// The recorder must not write, chown or delete anything there.
func TestReplacedSegmentFolder(t *testing.T) {
	testclass.Unit(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "r.parquet")
	w, err := Create(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Write(ClassFact, noteRows()), w.Rotate(Meta{}), w.Flush()); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(dir, "other")
	precious := filepath.Join(other, "000001-fact.parquet") // the name of a segment
	if err := errors.Join(
		os.Rename(w.Dir(), filepath.Join(dir, "moved")),
		os.Mkdir(other, 0o755),
		os.WriteFile(precious, []byte("precious"), 0o600),
		os.Symlink(other, w.Dir()),
	); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Write(ClassFact, noteRows()), w.Rotate(Meta{}), w.Flush()); err != nil {
		t.Fatal(err)
	}
	if err := w.Finish(Meta{}); err == nil {
		t.Error("the link in place of the folder was followed to delete segments")
	}
	if rec, err := Open(path); err != nil {
		t.Error(err)
	} else {
		if len(rec.Groups()) == 0 || rec.Meta.Complete != CompleteYes {
			t.Errorf("the recording has %d row groups", len(rec.Groups()))
		}
		rec.Close()
	}
	if _, err := Create(path, Options{Force: true}); err == nil {
		t.Error("--force followed a link")
	}
	if text, err := os.ReadFile(precious); err != nil || string(text) != "precious" {
		t.Errorf("the other folder's file is now %q, %v", text, err)
	}
	if files, err := filepath.Glob(filepath.Join(other, "*")); err != nil || len(files) != 1 {
		t.Errorf("the other folder holds %v, %v", files, err)
	}
	if segments, err := filepath.Glob(filepath.Join(dir, "moved", "*.parquet")); err != nil || len(segments) < 2 {
		t.Errorf("the folder that was made holds %v, %v", segments, err)
	}
}

// TestForceRefusesALink checks that a link at the recording's path is neither followed nor replaced.
func TestForceRefusesALink(t *testing.T) {
	testclass.Unit(t)
	dir := t.TempDir()
	path, precious := filepath.Join(dir, "r.parquet"), filepath.Join(dir, "precious")
	if err := errors.Join(os.WriteFile(precious, []byte("precious"), 0o600), os.Symlink(precious, path)); err != nil {
		t.Fatal(err)
	}
	for _, force := range []bool{false, true} {
		var refused *output.Error
		if _, err := Create(
			path,
			Options{Force: force},
		); !errors.As(err, &refused) || refused.Problem != output.IsLink ||
			refused.Target != precious {
			t.Errorf("force %v: %v", force, err)
		}
	}
	if target, err := os.Readlink(path); err != nil || target != precious {
		t.Errorf("the link is now %q, %v", target, err)
	}
	if text, err := os.ReadFile(precious); err != nil || string(text) != "precious" {
		t.Errorf("the link's target is now %q, %v", text, err)
	}
}

// TestNameTakenDuringRecording gives the recording's name to another file during the recording. That
// file and the segments remain.
func TestNameTakenDuringRecording(t *testing.T) {
	testclass.Unit(t)
	for name, take := range map[string]struct {
		do    func(path string) error
		force bool
	}{
		"a file":         {func(path string) error { return os.WriteFile(path, []byte("precious"), 0o600) }, false},
		"a link":         {func(path string) error { return os.Symlink("/dev/null", path) }, false},
		"a FIFO":         {func(path string) error { return syscall.Mkfifo(path, 0o600) }, false},
		"a link, forced": {func(path string) error { return os.Symlink("/dev/null", path) }, true},
		"a FIFO, forced": {func(path string) error { return syscall.Mkfifo(path, 0o600) }, true},
		"folder, forced": {func(path string) error { return os.Mkdir(path, 0o700) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "r.parquet")
			w, err := Create(path, Options{Force: take.force})
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(w.Write(ClassFact, noteRows()), take.do(path)); err != nil {
				t.Fatal(err)
			}
			before, err := os.Lstat(path)
			if err != nil {
				t.Fatal(err)
			}
			var refused *output.Error
			if err := w.Finish(Meta{}); !errors.Is(err, ErrExists) && !errors.As(err, &refused) {
				t.Errorf("Finish: %v", err)
			}
			if after, err := os.Lstat(
				path,
			); err != nil || !os.SameFile(before, after) || after.Mode() != before.Mode() ||
				after.Size() != before.Size() {
				t.Errorf("%v became %v, %v", before, after, err)
			}
			if left, err := filepath.Glob(path + ".*.tmp"); err != nil || len(left) > 0 {
				t.Errorf("left: %v, %v", left, err)
			}
			if damaged, err := Recover(w.Dir(), path+".saved", Options{}); err != nil || damaged != nil {
				t.Errorf("recover: %v, %v", damaged, err)
			}
		})
	}
}

// TestReplacedOutputFolder renames the output folder and replaces it by a link. The recording must be
// written to the original folder.
func TestReplacedOutputFolder(t *testing.T) {
	testclass.Unit(t)
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(os.Mkdir(in("out"), 0o755), os.Mkdir(in("other"), 0o755)); err != nil {
		t.Fatal(err)
	}
	w, err := Create(in("out/r.parquet"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(
		w.Write(ClassFact, noteRows()),
		os.Rename(in("out"), in("moved")),
		os.Symlink("other", in("out")),
		w.Finish(Meta{}),
	); err != nil {
		t.Fatal(err)
	}
	for pattern, want := range map[string]int{"other/*": 0, "moved/*": 1, "moved/r.parquet": 1} {
		if files, err := filepath.Glob(in(pattern)); err != nil || len(files) != want {
			t.Errorf("%s: %v, %v", pattern, files, err)
		}
	}
}
