package format

import (
	"io"
	"os"
	"path/filepath"
	"testing"
)

// FuzzOpen opens any bytes as a recording. Open must return an error or a recording whose rows can
// be read, and must not panic.
func FuzzOpen(f *testing.F) {
	path := filepath.Join(f.TempDir(), "r.parquet")
	w, err := Create(path, Options{})
	if err != nil {
		f.Fatal(err)
	}
	for c := range numRowClasses {
		if err := w.Write(c, testRows(c, 3)); err != nil {
			f.Fatal(err)
		}
	}
	if err := w.Finish(Meta{StartNs: 1, EndNs: 2}); err != nil {
		f.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add(whole[:len(whole)/2])
	f.Add([]byte("PAR1\x00\x00\x00\x00PAR1"))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "f.parquet")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		rec, err := Open(path)
		if (rec == nil) == (err == nil) {
			t.Fatalf("recording %v, error %v", rec, err)
		}
		if err == nil {
			_ = rec.WriteText(io.Discard) // errors are allowed, panics are not
			rec.Close()
		}
	})
}
