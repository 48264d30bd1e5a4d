//go:build linux

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/gpurec/gpurec/format"
	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/privilege"
)

// otherUser is the UID of a user who does not run the tests.
const otherUser = 54321

// place is an unsafe output path, and the text of the expected error.
type place struct{ path, wantError string }

// outputPlaces creates all kinds of unsafe output paths in dir, a folder of root.
func outputPlaces(t *testing.T, dir string) []place {
	t.Helper()
	must(t, os.Chmod(dir, 0o755))
	in := func(name string) string { return filepath.Join(dir, name) }
	node := func(name string, mode uint32, major, minor uint32) {
		t.Helper()
		must(t, unix.Mknod(in(name), mode|0o666, int(unix.Mkdev(major, minor))))
	}
	folder := func(name string, mode os.FileMode, uid, gid int) {
		t.Helper()
		must(t, os.Mkdir(in(name), 0o755))
		must(t, os.Chown(in(name), uid, gid))
		must(t, os.Chmod(in(name), mode))
		must(t, os.WriteFile(in(name+"/old"), []byte("precious"), 0o600))
	}
	node("char", unix.S_IFCHR, 1, 3) // a device like /dev/null
	node("block", unix.S_IFBLK, 7, 250)
	node("socket", unix.S_IFSOCK, 0, 0)
	node("fifo", unix.S_IFIFO, 0, 0)
	folder("folder", 0o755, 0, 0)
	must(t, os.WriteFile(in("file"), []byte("precious"), 0o600))
	var places []place
	for name, is := range map[string]string{
		"char":   "a device",
		"block":  "a device",
		"socket": "a socket",
		"fifo":   "a FIFO",
		"folder": "a folder",
		"file":   "a regular file",
	} {
		if name != "file" {
			places = append(places, place{in(name), "is " + is})
		}
		must(t, os.Symlink(in(name), in("to-"+name)))
		places = append(places, place{in("to-" + name), "is a symbolic link to " + is})
	}
	must(t, os.Symlink("nothing", in("dangling")))
	folder("open", 0o777, 0, 0)
	folder("group", 0o775, 0, otherUser)
	folder("foreign", 0o755, otherUser, otherUser)
	folder("foreign-sticky", os.ModeSticky|0o777, otherUser, otherUser)
	folder("sticky", os.ModeSticky|0o777, 0, 0)
	must(t, os.Chown(in("sticky/old"), otherUser, otherUser))
	must(t, os.Symlink(in("folder"), in("sticky/way")))
	must(t, os.Lchown(in("sticky/way"), otherUser, otherUser))
	places = append(places, place{in("dangling"), "is a dangling symbolic link"}, place{in("folder/"), "is a folder"},
		place{in("sticky/old"), "belongs to user 54321"}, place{in("sticky/way/new"), "symbolic link way on the way " +
			"there belongs to user 54321"},
		place{in("folder/../sticky/way/old"), "symbolic link way on the way there belongs to user 54321"})
	for _, name := range []string{"new", "old"} {
		places = append(places, place{in("open/" + name), "everyone may replace files in folder " + in("open")},
			place{in("group/" + name), "group 54321 may replace files in folder " + in("group")},
			place{in("foreign/" + name), "folder " + in("foreign") + " belongs to user 54321"},
			place{in("foreign-sticky/" + name), "folder " + in("foreign-sticky") + " belongs to user 54321"})
	}
	return places
}

// snapshot returns a text with the name, type, mode, owner and content of dir and all files in it.
func snapshot(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	must(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st syscall.Stat_t
		if err := syscall.Lstat(path, &st); err != nil {
			return err
		}
		target, _ := os.Readlink(path) // "" for files that are not links
		fmt.Fprintf(&b, "%s ino=%d mode=%o owner=%d:%d links=%d rdev=%d size=%d mtime=%v ctime=%v %s\n",
			path, st.Ino, st.Mode, st.Uid, st.Gid, st.Nlink, st.Rdev, st.Size, st.Mtim, st.Ctim, target)
		return nil
	}))
	return b.String()
}

// needOutputs skips the test without root: only root can create devices and attach probes.
func needOutputs(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 || privilege.CheckAttach(privilege.AttachAuto) != nil {
		testclass.Missing(t, "devices and files of other users need root")
	}
}

// outputRecordings writes the input files of the commands: a finished and an unfinished recording.
func outputRecordings(t *testing.T, dir string) (finished, unfinished string) {
	t.Helper()
	const start = 1_790_000_000_000_000_000
	for _, name := range []string{"run.parquet", "cut.parquet"} {
		w, err := format.Create(filepath.Join(dir, name), format.Options{})
		must(t, err)
		must(t, writeAllocator(w, start))
		meta := format.Meta{StartNs: start, EndNs: start + 5e9}
		must(t, errors.Join(w.Rotate(meta), w.Flush()))
		if name == "run.parquet" {
			must(t, w.Finish(meta))
		}
	}
	return filepath.Join(dir, "run.parquet"), filepath.Join(dir, "cut.parquet.d")
}

// TestUnsafeOutputs passes every unsafe path to every flag that names an output file. gpurec must
// print one error that names the path. It must not create, change or remove any file.
func TestUnsafeOutputs(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	t.Parallel()
	needOutputs(t)
	dir := t.TempDir()
	finished, unfinished := outputRecordings(t, dir)
	places := outputPlaces(t, dir)
	commands := map[string][]string{
		"record -o":    {"record", "-o", "PATH", "--", "touch", filepath.Join(dir, "started")},
		"record -p -o": {"record", "--wait", "-p", fmt.Sprint(os.Getpid()), "-d", "100ms", "-o", "PATH"},
		"record --ready-file": {
			"record",
			"-o",
			filepath.Join(dir, "new.parquet"),
			"--ready-file",
			"PATH",
			"--",
			"touch",
			filepath.Join(dir, "started"),
		},
		"recover -o":          {"recover", unfinished, "-o", "PATH"},
		"pprof -o":            {"analyze", "pprof", "-o", "PATH", finished},
		"folded -o":           {"analyze", "folded", "-o", "PATH", finished},
		"perfetto -o":         {"analyze", "perfetto", "-o", "PATH", finished},
		"perfetto --split -o": {"analyze", "perfetto", "--split", "-o", "PATH", finished},
		"report -o":           {"analyze", "report", "-o", "PATH", finished},
		"torch-snapshot -o":   {"analyze", "torch-snapshot", "--pid", "4242", "-o", "PATH", finished},
		"frag --svg":          {"analyze", "frag", "--svg", "PATH", finished},
	}
	before := snapshot(t, dir)
	refuse := func(name string, p place, args []string) {
		t.Helper()
		_, stderr, code := runGpurec(t, args...)
		if code != message.ExitFailed || !strings.Contains(stderr, "error: "+p.path+" ") ||
			!strings.Contains(stderr, p.wantError) ||
			strings.Count(stderr, "error: ") != 1 ||
			!strings.Contains(stderr, "hint: ") {
			t.Errorf("%s: exit status %d, want %q:\n%s", name, code, p.wantError, stderr)
		}
		if after := snapshot(t, dir); after != before {
			t.Fatalf("%s: before\n%safter\n%s", name, before, after)
		}
	}
	for name, command := range commands {
		for _, p := range places {
			args := strings.Split(strings.ReplaceAll(strings.Join(command, "\x00"), "PATH", p.path), "\x00")
			refuse(name+" "+p.path, p, args)
			forced := append([]string{args[0]}, append([]string{"--force"}, args[1:]...)...)
			if args[0] == "analyze" {
				forced = append([]string{args[0], args[1], "--force"}, args[2:]...)
			}
			refuse(name+" "+p.path+" --force", p, forced)
		}
	}
}

// TestUnsafeDerivedOutputs creates devices and links at paths that gpurec derives from the output
// path: the folder of segments, and later parts of a trace. gpurec must not write to them.
func TestUnsafeDerivedOutputs(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	needOutputs(t)
	dir := t.TempDir()
	finished, _ := outputRecordings(t, dir)
	in := func(name string) string { return filepath.Join(dir, name) }
	must(t, unix.Mknod(in("a.parquet.d"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
	must(t, os.Mkdir(in("elsewhere"), 0o700))
	must(t, os.WriteFile(in("elsewhere/000001-fact.parquet"), []byte("precious"), 0o600))
	must(t, os.Symlink(in("elsewhere"), in("b.parquet.d")))
	must(t, os.Mkdir(in("c.parquet.d"), 0o700))
	must(t, unix.Mknod(in("c.parquet.d/000001-fact.parquet"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
	must(t, os.Mkdir(in("d.parquet.d"), 0o700))
	must(t, os.WriteFile(in("d.parquet.d/000001-fact.parquet"), nil, 0o600))
	must(t, os.WriteFile(in("d.parquet.d/thesis.tex"), []byte("precious"), 0o600))
	must(t, unix.Mknod(in("trace.3.pftrace.gz"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
	gpurec, err := exec.LookPath("gpurec")
	must(t, err)
	before := snapshot(t, dir)
	for wantError, args := range map[string][]string{
		in("a.parquet.d") + " is a device":                                       {"record", "--force", "-o", in("a.parquet"), "--", "touch", in("started")},
		in("b.parquet.d") + " is a symbolic link to a folder":                    {"record", "--force", "-o", in("b.parquet"), "--", "touch", in("started")},
		in("c.parquet.d") + " holds 000001-fact.parquet, which is not a segment": {"record", "--force", "-o", in("c.parquet"), "--", "touch", in("started")},
		in("d.parquet.d") + " holds thesis.tex, which is not a segment":          {"record", "--force", "-o", in("d.parquet"), "--", "touch", in("started")},
		in("trace.3.pftrace.gz") + " is a device":                                {"analyze", "perfetto", "--split", "--max-slices", "3", "--force", "-o", in("trace.pftrace.gz"), finished},
		in("b.parquet.d") + " cannot be read: ":                                  {"recover", in("b.parquet.d"), "-o", in("saved.parquet")},
	} {
		cmd := exec.Command(gpurec, args...)
		out, _ := cmd.CombinedOutput() // the test checks the exit code instead of the error
		if code := cmd.ProcessState.ExitCode(); code != message.ExitFailed ||
			!strings.Contains(string(out), "error: "+wantError) {
			t.Errorf("%v: exit status %d, want %q:\n%s", args, code, wantError, out)
		}
		if after := snapshot(t, dir); after != before {
			t.Fatalf("%v: before\n%safter\n%s", args, before, after)
		}
	}
}

// TestSafeOutputs writes to folders that other users may write to but whose files they cannot
// replace.
func TestSafeOutputs(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	needOutputs(t)
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o755))
	finished, _ := outputRecordings(t, dir)
	folder := func(name string, mode os.FileMode, uid, gid int) string {
		path := filepath.Join(dir, name)
		must(t, os.Mkdir(path, 0o755))
		must(t, os.Chown(path, uid, gid))
		must(t, os.Chmod(path, mode))
		return path
	}
	sticky := folder("sticky", os.ModeSticky|0o777, 0, 0)
	folder("alice", 0o755, otherUser, otherUser)
	folder("group", 0o775, otherUser, otherUser) // the mode of a new folder with umask 002
	must(t, os.Symlink("alice", filepath.Join(dir, "home")))
	must(t, os.Lchown(filepath.Join(dir, "home"), otherUser, otherUser))
	gpurec, err := exec.LookPath("gpurec")
	must(t, err)
	write := func(sudo bool, path string, force ...string) {
		t.Helper()
		for _, args := range [][]string{
			append([]string{"record", "--stacks", "off", "--nvml-interval", "0", "-o", path + ".parquet"}, append(force, "--", "true")...),
			append([]string{"analyze", "perfetto", "-o", path + ".pftrace", finished}, force...),
		} {
			cmd := exec.Command(gpurec, args...)
			cmd.Env = os.Environ()
			if sudo {
				cmd.Env = append(cmd.Env, fmt.Sprint("SUDO_UID=", otherUser), fmt.Sprint("SUDO_GID=", otherUser))
			}
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %v\n%s", args, err, out)
			}
		}
		owner := uint32(0)
		if sudo {
			owner = otherUser
		}
		for _, suffix := range []string{".parquet", ".pftrace"} {
			var st syscall.Stat_t
			must(t, syscall.Lstat(path+suffix, &st))
			if st.Mode != syscall.S_IFREG|0o600 || st.Uid != owner || st.Nlink != 1 {
				t.Errorf("%s has mode %o, owner %d, %d links", path+suffix, st.Mode, st.Uid, st.Nlink)
			}
		}
	}
	write(false, filepath.Join(sticky, "a"))
	write(false, filepath.Join(sticky, "a"), "--force")
	write(true, filepath.Join(dir, "alice", "a"))
	write(true, filepath.Join(dir, "home", "a"), "--force")
	write(true, filepath.Join(dir, "group", "a"))
	write(true, filepath.Join(sticky, "b"))
	write(true, filepath.Join(sticky, "b"), "--force")
	for _, pattern := range []string{"*/*.tmp", "*/*.d"} {
		if left, err := filepath.Glob(filepath.Join(dir, pattern)); err != nil || len(left) > 0 {
			t.Errorf("files left in the folder: %v, %v", left, err)
		}
	}
}
