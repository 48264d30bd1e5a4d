package output

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
)

// TestOpenParentFollowsPaths checks that for root, openParentFolder reaches the same folders as the
// kernel, unless a link belongs to another user.
func TestOpenParentFollowsPaths(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	if os.Getuid() != 0 {
		testclass.Missing(t, "openParent walks the path for root only")
	}
	dir := t.TempDir()
	t.Chdir(dir)
	const alice = 54321
	if err := errors.Join(
		os.MkdirAll("a/b/c", 0o755),
		os.Symlink("b/c", "a/link"),
		os.Symlink(filepath.Join(dir, "a"), "absolute"),
		os.Symlink("loop", "loop"),
		os.Symlink("a/b", "alice"),
		os.Lchown("alice", alice, alice),
		syscall.Mkfifo("fifo", 0o600),
	); err != nil {
		t.Fatal(err)
	}
	for way, c := range map[string]struct {
		to    string // "": an error
		owner Owner
	}{
		".":                             {to: "."},
		"a//b/./c/":                     {to: "a/b/c"},
		"a/link":                        {to: "a/b/c"},
		"a/link/..":                     {to: "a/b"},
		"absolute/link/../../":          {to: "a"},
		"../../../../../../../.." + dir: {to: "."}, dir + "/a/../a": {to: "a"}, "/proc/self/cwd/a": {to: "a"},
		"/proc/self/root": {to: "/"}, "alice": {to: "a/b", owner: Owner{UID: alice, GID: alice, Set: true}},
		"alice/": {}, "loop": {}, "fifo": {}, "fifo/": {}, "none": {},
	} {
		folder, err := openParentFolder(way, c.owner)
		if c.to == "" {
			if err == nil {
				t.Errorf("%s leads to %s", way, folder.Name())
				folder.Close()
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", way, err)
			continue
		}
		want, err := os.Stat(c.to)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := folder.Stat("."); err != nil || !os.SameFile(got, want) {
			t.Errorf("%s does not lead to %s, %v", way, c.to, err)
		}
		folder.Close()
	}
}
