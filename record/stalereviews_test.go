//go:build linux

package record

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/gpurec/gpurec/internal/testclass"
)

// TestStaleReviews checks that only old folders of reviews are deleted, and only files of recordings in them.
func TestStaleReviews(t *testing.T) {
	testclass.Unit(t)
	dir := t.TempDir()
	old := time.Now().Add(-2 * staleReview)
	for name, file := range map[string]string{
		".gpurec-review-1-A.sealing": "000001-call.parquet",
		".gpurec-review-1-B.pending": "trigger.json",
		".gpurec-review-1-C.sealing": "notes.txt",
		".gpurec-review-2-D.sealing": "000001-call.parquet", // a new one
		"20261129-oom.sealing":       "000001-call.parquet",
	} {
		path := filepath.Join(dir, name)
		must(t, os.Mkdir(path, 0o700))
		must(t, os.WriteFile(filepath.Join(path, file), nil, 0o600))
		if name != ".gpurec-review-2-D.sealing" {
			must(t, os.Chtimes(path, old, old))
		}
	}
	root, err := os.OpenRoot(dir)
	must(t, err)
	defer root.Close()
	removeStaleReviews(root, time.Now())
	entries, err := os.ReadDir(dir)
	must(t, err)
	var left []string
	for _, e := range entries {
		left = append(left, e.Name())
	}
	want := []string{".gpurec-review-1-C.sealing", ".gpurec-review-2-D.sealing", "20261129-oom.sealing"}
	if !slices.Equal(left, want) {
		t.Errorf("left %q, want %q", left, want)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
