//go:build !linux

package format

import (
	"io/fs"
	"os"
)

// openOutputFolder opens the folder of an output.
func openOutputFolder(dir string, _ Owner) (*os.Root, error) { return os.OpenRoot(dir) }

// foreignFile knows no other users.
func foreignFile(_, _ fs.FileInfo, _ Owner) string { return "" }
