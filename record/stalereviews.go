//go:build linux

package record

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gpurec/gpurec/format"
)

const (
	// reviewPrefix begins the name of the folder of a review.
	reviewPrefix = ".gpurec-review-"
	// staleReview is the age of a folder that belongs to no review any more.
	staleReview = time.Hour
)

// removeReview deletes the folder of a review, if it exists.
func removeReview(folder *os.Root, id string) {
	for _, state := range []string{format.PendingSuffix, format.SealingSuffix} {
		_ = format.RemoveCapture(folder, format.Capture{ID: id, State: state}) // Judge deletes it as a rule
	}
}

// removeStaleReviews deletes the folders that killed recorders have left.
func removeStaleReviews(folder *os.Root, now time.Time) {
	names, _ := fs.Glob(folder.FS(), reviewPrefix+"*") // the next recorder tries again
	for _, name := range names {
		if info, err := folder.Lstat(name); err == nil && info.IsDir() && now.Sub(info.ModTime()) > staleReview {
			removeReview(folder, strings.TrimSuffix(name, filepath.Ext(name)))
		}
	}
}
