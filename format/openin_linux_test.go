package format_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// writeSmall writes a recording with some calls.
func writeSmall(t *testing.T, path string) {
	t.Helper()
	w, err := format.Create(path, format.Options{})
	if err != nil {
		t.Fatal(err)
	}
	rows := make([]format.Row, 1000)
	for i := range rows {
		rows[i] = format.Row{Kind: format.KindAPI, Name: "cuInit", StartNs: int64(i + 1), Pid: 1, Tid: 1}
	}
	if err := w.Write(format.ClassCall, rows); err != nil {
		t.Fatal(err)
	}
	if err := w.Finish(format.Meta{StartNs: 1, EndNs: 2000}); err != nil {
		t.Fatal(err)
	}
}

// confined returns a folder with recordings, links, pipes and devices, next to a recording that is not in it.
func confined(t *testing.T) *os.Root {
	t.Helper()
	outside := t.TempDir()
	folder := filepath.Join(outside, "folder")
	for _, dir := range []string{folder, filepath.Join(folder, "sub"), filepath.Join(folder, "pipes.parquet.d")} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	writeSmall(t, filepath.Join(outside, "secret.parquet"))
	writeSmall(t, filepath.Join(folder, "run.parquet"))
	writeSmall(t, filepath.Join(folder, "sub", "run.parquet"))
	for name, target := range map[string]string{
		"good.parquet": "sub/run.parquet", "out.parquet": "../secret.parquet", "up": "..",
		"absolute.parquet": filepath.Join(outside, "secret.parquet"), "dangling.parquet": "absent",
		"loop.parquet": "loop.parquet", "null.parquet": "/dev/null",
	} {
		if err := os.Symlink(target, filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, pipe := range []string{"pipe.parquet", "pipes.parquet.d/000001-call.parquet"} {
		if err := syscall.Mkfifo(filepath.Join(folder, pipe), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	// Only root can create a device; without root this name does not exist.
	_ = syscall.Mknod(filepath.Join(folder, "zero.parquet"), syscall.S_IFCHR|0o644, 1<<8|5)
	root, err := os.OpenRoot(folder)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return root
}

// TestOpenIn checks that OpenIn opens recordings in its folder, also by links in it, and nothing else.
func TestOpenIn(t *testing.T) {
	testclass.Unit(t)
	root := confined(t)
	for _, c := range []struct {
		name string
		want error
	}{
		{"run.parquet", nil},
		{"sub/run.parquet", nil},
		{"./sub/../run.parquet", nil},
		{"good.parquet", nil},
		{"", format.ErrOutside},
		{"../secret.parquet", format.ErrOutside},
		{"sub/../../secret.parquet", format.ErrOutside},
		{filepath.Join(root.Name(), "run.parquet"), format.ErrOutside},
		{"/dev/null", format.ErrOutside},
		{"out.parquet", format.ErrOutside},
		{"absolute.parquet", format.ErrOutside},
		{"null.parquet", format.ErrOutside},
		{"up/secret.parquet", format.ErrOutside},
		{"loop.parquet", syscall.ELOOP},
		{"dangling.parquet", fs.ErrNotExist},
		{"absent.parquet", fs.ErrNotExist},
		{"pipe.parquet", format.ErrNotRegular},
		{"pipes.parquet.d", format.ErrNotRegular},
		{"sub", format.ErrNoSegments},
		{".", format.ErrNoSegments},
		{"run.parquet/x", syscall.ENOTDIR},
		{"a\x00b", syscall.EINVAL},
	} {
		rec, err := format.OpenIn(context.Background(), root, c.name)
		if err == nil {
			if n := rec.NumRows(); n < 1000 {
				t.Errorf("%q: %d rows", c.name, n)
			}
			rec.Close()
		}
		if c.want == nil && err != nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%q: %v, want %v", c.name, err, c.want)
		}
	}
	if _, err := root.Stat("zero.parquet"); err == nil {
		if _, err := format.OpenIn(context.Background(), root, "zero.parquet"); !errors.Is(err, format.ErrNotRegular) {
			t.Errorf("a device: %v", err)
		}
	}
}

// TestOpenInCanceled checks that when the context is done, reading fails, and says why.
func TestOpenInCanceled(t *testing.T) {
	testclass.Unit(t)
	root := confined(t)
	ctx, cancel := context.WithCancel(context.Background())
	rec, err := format.OpenIn(ctx, root, "run.parquet")
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	count := func() (n int, err error) {
		err = rec.Rows(func(*format.Row) error { n++; return nil }, format.ClassCall)
		return n, err
	}
	if n, err := count(); n != 1000 || err != nil {
		t.Fatalf("%d rows, %v", n, err)
	}
	cancel()
	if n, err := count(); n != 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("%d rows, %v", n, err)
	}
	if _, err := format.OpenIn(ctx, root, "run.parquet"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
