package format

// The folder of segments, which a recording is until it is finished.

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/gpurec/gpurec/format/output"
)

// openRecording checks the paths of a recording and of its folder of segments. An existing folder
// must hold segments and nothing else.
func openRecording(path string, opt Options) (*output.Destination, error) {
	out, err := output.Open(path, opt.output())
	if err != nil {
		return nil, err
	}
	if err := out.CheckFolder(SegmentSuffix, "segment", isSegment); err != nil {
		out.Close()
		return nil, err
	}
	return out, nil
}

// makeFolder makes the folder of segments, in place of an old one, and opens it. From then on
// its owner can replace it and all that is in it, so that whoever writes with root's rights must
// not go by names: what is written goes to this very folder, and files change hands when they
// are open.
func (w *Writer) makeFolder() (err error) {
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
	if err := w.takeFolder(); err != nil {
		w.root.Close()
		_ = parent.Remove(name)
		return output.WithPath(err, w.dir)
	}
	w.disk = newDisk(w.root, w.own)
	return nil
}

// takeFolder gives the new folder to its owner: one that holds something is not the new one.
func (w *Writer) takeFolder() error {
	entries, err := fs.ReadDir(w.root.FS(), ".")
	if err == nil && len(entries) > 0 {
		err = errors.New("was replaced by another folder")
	}
	if err != nil || !w.opt.Owner.Set {
		return err
	}
	return w.root.Chown(".", w.opt.Owner.UID, w.opt.Owner.GID)
}

// removeSegments deletes a folder of segments and nothing else: only files with names that a
// Writer makes, then the folder if that left it empty.
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
		if isSegment(e) {
			if err := root.Remove(e.Name()); err != nil {
				return err
			}
		}
	}
	return parent.Remove(name)
}

// isSegment reports whether a Writer could have made an entry of a folder.
func isSegment(e fs.DirEntry) bool { return e.Type().IsRegular() && isSegmentName(e.Name()) }

// isSegmentName reports whether a Writer could have made a file of this name:
// 000001-call.parquet, or with .tmp behind while it was open.
func isSegmentName(name string) bool {
	_, ok := parseSegmentName(strings.TrimSuffix(name, ".tmp"))
	return ok
}

// segmentFiles lists the finished segments of a folder in the order they were made.
func segmentFiles(root *os.Root, dir string) ([]string, error) {
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
	for _, s := range withoutReplaced(all) {
		files = append(files, s.path)
	}
	return files, nil
}
