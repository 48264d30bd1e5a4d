package format

// Segment folder: the form of a recording until Finish or Recover merges the segments into a file.

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/gpurec/gpurec/format/output"
)

// checkRecordingPaths checks the paths of a recording and of its folder of segments. An existing
// folder must hold segments and nothing else.
func checkRecordingPaths(path string, opt Options) (*output.Destination, error) {
	out, err := output.Open(path, opt.outputOptions())
	if err != nil {
		return nil, err
	}
	if err := out.CheckFolder(SegmentSuffix, "segment", isSegmentEntry); err != nil {
		out.Close()
		return nil, err
	}
	return out, nil
}

// createSegmentFolder creates the segment folder and opens it. With Options.Force it first deletes
// an old segment folder. The recording's owner can rename or replace the folder at any time, so a
// recorder with root's rights must not use paths: it creates files relative to the open folder, and
// changes the owner of open files only.
func (w *Writer) createSegmentFolder() (err error) {
	parent, name := w.out.Folder(), w.out.Name()+SegmentSuffix
	if w.opt.Force {
		if err := removeSegments(parent, name); err != nil {
			return output.WithPath(err, w.dir)
		}
	}
	if err := parent.Mkdir(name, 0o700); err != nil {
		return output.WithPath(err, w.dir)
	}
	if w.root, err = output.OpenFolder(parent, name); err != nil {
		_ = parent.Remove(name) // the error that matters is already there
		return output.WithPath(err, w.dir)
	}
	if err := w.changeFolderOwner(); err != nil {
		w.root.Close()
		_ = parent.Remove(name)
		return output.WithPath(err, w.dir)
	}
	w.disk = newDiskQueue(w.root, w.changeFileOwner)
	return nil
}

// changeFolderOwner gives the new folder to the recording's owner. It returns an error if the
// folder is not empty: then it is not the folder that createSegmentFolder created.
func (w *Writer) changeFolderOwner() error {
	entries, err := fs.ReadDir(w.root.FS(), ".")
	if err == nil && len(entries) > 0 {
		err = errors.New("was replaced by another folder")
	}
	if err != nil || !w.opt.Owner.Set {
		return err
	}
	return w.root.Chown(".", w.opt.Owner.UID, w.opt.Owner.GID)
}

// RemoveSegments deletes a folder of segments that no recorder writes any more. It deletes no other files. A folder that
// does not exist is no error.
func RemoveSegments(parent *os.Root, name string) error { return removeSegments(parent, name) }

// removeSegments deletes the segment files of a folder, then the folder if it is empty. It deletes
// no other files. A folder that does not exist is no error.
func removeSegments(parent *os.Root, name string) error {
	root, err := output.OpenFolder(parent, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if isSegmentEntry(e) {
			if err := root.Remove(e.Name()); err != nil {
				return err
			}
		}
	}
	return parent.Remove(name)
}

// isSegmentEntry reports whether a folder entry is a regular file with the name of a segment.
func isSegmentEntry(e fs.DirEntry) bool { return e.Type().IsRegular() && isSegmentFileName(e.Name()) }

// isSegmentFileName reports whether a file name is that of a segment: 000001-call.parquet, or
// 000001-call.parquet.tmp while it is being written.
func isSegmentFileName(name string) bool {
	_, ok := parseSegmentName(strings.TrimSuffix(name, ".tmp"))
	return ok
}

// listSegmentFiles returns the paths of the finished segments in a folder, in the order of their
// creation.
func listSegmentFiles(root *os.Root, dir string) ([]string, error) {
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return nil, err
	}
	var all []segmentName
	for _, e := range entries {
		if s, ok := parseSegmentName(e.Name()); ok {
			s.path = filepath.Join(dir, e.Name())
			all = append(all, s)
		}
	}
	var files []string
	for _, s := range omitReplacedSegments(all) {
		files = append(files, s.path)
	}
	return files, nil
}
