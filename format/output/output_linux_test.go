package output

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
)

// TestOpenRefusesNonRegularFiles checks that Open refuses everything except regular files, with and
// without Force.
func TestOpenRefusesNonRegularFiles(t *testing.T) {
	testclass.Unit(t)
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	socket, err := net.Listen("unix", in("socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	if err := errors.Join(os.Mkdir(in("folder"), 0o755), syscall.Mkfifo(in("fifo"), 0o600),
		os.WriteFile(in("file"), []byte("precious"), 0o600), os.Symlink("file", in("link")),
		os.Symlink("nothing", in("dangling")), os.Symlink("folder", in("to-folder"))); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]Error{
		in("folder"):       {Problem: IsFolder, Description: "is a folder"},
		in("folder") + "/": {Problem: IsFolder, Description: "is a folder"},
		in("folder/.."):    {Problem: IsFolder, Description: "is a folder"},
		in("fifo"):         {Problem: NotRegular, Description: "is a FIFO"},
		in("socket"):       {Problem: NotRegular, Description: "is a socket"},
		os.DevNull:         {Problem: NotRegular, Description: "is a device"},
		in("link"):         {Problem: IsLink, Description: "is a symbolic link to a regular file", Target: in("file")},
		in("dangling"):     {Problem: IsLink, Description: "is a dangling symbolic link"},
		in("to-folder"):    {Problem: IsLink, Description: "is a symbolic link to a folder"},
	} {
		want.Path = path
		for _, force := range []bool{false, true} {
			d, err := Open(path, Options{Force: force})
			var refused *Error
			if d != nil || !errors.As(err, &refused) || *refused != want {
				t.Errorf("%s, force %v: %v, want %v", path, force, err, &want)
			}
		}
	}
	if _, err := Open(in("none/file"), Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a folder that does not exist: %v", err)
	}
	if text, err := os.ReadFile(in("file")); err != nil || string(text) != "precious" {
		t.Errorf("the file is now %q, %v", text, err)
	}
}

func TestRulesForRoot(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	if os.Getuid() != 0 {
		testclass.Missing(t, "the rules apply to root only")
	}
	const alice, bob = 54321, 54322
	ofAlice := Owner{UID: alice, GID: alice, Set: true}
	for name, c := range map[string]struct {
		uid, gid int
		mode     uint32
		owner    Owner
		want     string // of the error
	}{
		"root's folder":             {0, 0, 0o755, Owner{}, ""},
		"folder of another user":    {alice, alice, 0o755, Owner{}, "belongs to user 54321"},
		"folder of the user behind": {alice, alice, 0o755, ofAlice, ""},
		"sudo by someone else":      {bob, bob, 0o755, ofAlice, "belongs to user 54322"},
		"everyone may write":        {0, 0, 0o777, Owner{}, "everyone may replace files"},
		"sticky, as /tmp":           {0, 0, 0o1777, Owner{}, ""},
		"a group may write":         {0, bob, 0o775, Owner{}, "group 54322 may replace files"},
		"the user's own group":      {alice, alice, 0o775, ofAlice, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "out")
			if err := errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, c.uid, c.gid),
				syscall.Chmod(dir, c.mode)); err != nil {
				t.Fatal(err)
			}
			d, err := Open(filepath.Join(dir, "file"), Options{Owner: c.owner})
			if err == nil {
				d.Close()
			}
			var refused *Error
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (!errors.As(err, &refused) || refused.Problem != ForeignFolder ||
				!strings.Contains(refused.Description, c.want)):
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

func TestForeignFileIsNotReplaced(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	if os.Getuid() != 0 {
		testclass.Missing(t, "only root can give files away")
	}
	path := filepath.Join(t.TempDir(), "file")
	if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Chown(path, 54321, 54321)); err != nil {
		t.Fatal(err)
	}
	var refused *Error
	if _, err := Open(path, Options{Force: true}); !errors.As(err, &refused) || refused.Problem != ForeignFile {
		t.Errorf("Open: %v", err)
	}
	d, err := Open(path, Options{Force: true, Owner: Owner{UID: 54321, GID: 54321, Set: true}})
	if err != nil {
		t.Fatal(err)
	}
	d.Close()
}

func TestCheckFolder(t *testing.T) {
	testclass.Unit(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "r")
	isOurs := func(e fs.DirEntry) bool { return strings.HasPrefix(e.Name(), "ours") }
	check := func(force bool) error {
		d, err := Open(path, Options{Force: force})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		return d.CheckFolder(".d", "part", isOurs)
	}
	if err := check(false); err != nil {
		t.Errorf("no folder: %v", err)
	}
	if err := errors.Join(os.Mkdir(path+".d", 0o700), os.WriteFile(path+".d/ours-1", nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := check(false); !errors.Is(err, ErrExists) {
		t.Errorf("a folder without Force: %v", err)
	}
	if err := check(true); err != nil {
		t.Errorf("a folder of ours: %v", err)
	}
	if err := os.WriteFile(path+".d/thesis.tex", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var refused *Error
	if err := check(true); !errors.As(err, &refused) || refused.Description != "holds thesis.tex, which is not a part" {
		t.Errorf("a foreign entry: %v", err)
	}
	if err := errors.Join(os.RemoveAll(path+".d"), os.WriteFile(path+".d", nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := check(
		true,
	); !errors.As(err, &refused) ||
		refused.Description != "is a regular file, and parts need a folder "+
			"of this name" {
		t.Errorf("a file in place of the folder: %v", err)
	}
	if err := errors.Join(os.Remove(path+".d"), os.Symlink(dir, path+".d")); err != nil {
		t.Fatal(err)
	}
	if err := check(true); !errors.As(err, &refused) || refused.Description != "is a symbolic link to a folder" {
		t.Errorf("a link in place of the folder: %v", err)
	}
}
