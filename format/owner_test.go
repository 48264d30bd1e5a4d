//go:build linux

package format

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// oneRow is something to write.
func oneRow() []Row { return []Row{{Kind: KindNote, Name: "n", Device: -1}} }

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
	if os.Getuid() != 0 {
		t.Skip("only root can give files away")
	}
	defer syscall.Umask(syscall.Umask(0)) // what the mode is must not depend on it
	path := filepath.Join(t.TempDir(), "r.parquet")
	w, err := Create(path, Options{Owner: Owner{UID: 65534, GID: 65534, Set: true}})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Write(ClassFact, oneRow()), w.Rotate(Meta{}), w.Flush()); err != nil {
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

// The owner of the folder puts another in its place, or a link: nothing is written there,
// nothing there changes hands, and nothing there is deleted.
func TestFolderThatIsReplaced(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "r.parquet")
	w, err := Create(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Write(ClassFact, oneRow()), w.Rotate(Meta{}), w.Flush()); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(dir, "other")
	precious := filepath.Join(other, "000001-fact.parquet") // as a segment is called
	if err := errors.Join(os.Rename(w.Dir(), filepath.Join(dir, "moved")), os.Mkdir(other, 0o755), os.WriteFile(precious, []byte("precious"), 0o600),
		os.Symlink(other, w.Dir())); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Write(ClassFact, oneRow()), w.Rotate(Meta{}), w.Flush()); err != nil {
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

// A link in place of the recording is replaced, not followed.
func TestForceReplacesALink(t *testing.T) {
	dir := t.TempDir()
	path, precious := filepath.Join(dir, "r.parquet"), filepath.Join(dir, "precious")
	if err := errors.Join(os.WriteFile(precious, []byte("precious"), 0o600), os.Symlink(precious, path)); err != nil {
		t.Fatal(err)
	}
	if _, err := Create(path, Options{}); !errors.Is(err, ErrExists) {
		t.Errorf("Create over a link: %v", err)
	}
	w, err := Create(path, Options{Force: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Write(ClassFact, oneRow()), w.Finish(Meta{})); err != nil {
		t.Fatal(err)
	}
	if _, mode := statOf(t, path); !mode.IsRegular() {
		t.Errorf("the recording is %v", mode)
	}
	if text, err := os.ReadFile(precious); err != nil || string(text) != "precious" {
		t.Errorf("the link's target is now %q, %v", text, err)
	}
}
