//go:build !linux

package output

import (
	"io/fs"
	"os"
)

// openParentFolder opens the folder of an output.
func openParentFolder(dir string, _ Owner) (*os.Root, error) { return os.OpenRoot(dir) }

// describeForeignOwner returns "": the rules about other users apply on Linux only.
func describeForeignOwner(_, _ fs.FileInfo, _ Owner) string { return "" }
