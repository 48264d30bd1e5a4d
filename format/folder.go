package format

// The folder of segments, which a recording is until it is finished.

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// openRecording checks a recording's name and that of its segments.
func openRecording(path string, opt Options) (*Output, error) {
	out, err := OpenOutput(path, opt)
	if err != nil {
		return nil, err
	}
	if err := out.checkSegments(); err != nil {
		out.Close()
		return nil, err
	}
	return out, nil
}

// checkSegments checks that the folder of segments can be made, or replaced: it then holds
// segments and nothing else.
func (o *Output) checkSegments() error {
	path, name := o.path+SegmentSuffix, o.name+SegmentSuffix
	info, err := o.folder.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return outputError(path, err)
	}
	refused := &OutputError{Path: path, Problem: OutputNotRegular}
	if !info.IsDir() {
		refused.What = "is " + kindOf(info.Mode()) + ", and segments need a folder of this name"
		if info.Mode()&fs.ModeSymlink != 0 {
			refused.What, _ = describeLink(path)
		}
		return refused
	}
	if refused.What = o.foreign(info); refused.What != "" {
		refused.Problem = OutputForeignFile
		return refused
	}
	if !o.opt.Force {
		return &fs.PathError{Op: "create recording", Path: path, Err: ErrExists}
	}
	entries, err := fs.ReadDir(o.folder.FS(), name)
	if err != nil {
		return outputError(path, err)
	}
	for _, e := range entries {
		if !isSegment(e) {
			refused.What = "holds " + e.Name() + ", which is no segment"
			return refused
		}
	}
	return nil
}

// makeFolder makes the folder of segments, in place of an old one, and opens it. From then on
// its owner can replace it and all that is in it, so that whoever writes with root's rights must
// not go by names: what is written goes to this very folder, and files change hands when they
// are open.
func (w *Writer) makeFolder() (err error) {
	parent, name := w.out.folder, w.out.name+SegmentSuffix
	if w.opt.Force {
		if err := removeSegments(parent, name); err != nil {
			return outputError(w.dir, err)
		}
	}
	if err := parent.Mkdir(name, 0o700); err != nil {
		return outputError(w.dir, err)
	}
	if w.root, err = openFolder(parent, name); err != nil {
		_ = parent.Remove(name) // the error that matters is already there
		return outputError(w.dir, err)
	}
	if err := w.takeFolder(); err != nil {
		w.root.Close()
		_ = parent.Remove(name)
		return outputError(w.dir, err)
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

// openFolder opens a folder of parent, but none that a link leads to.
func openFolder(parent *os.Root, name string) (*os.Root, error) {
	root, err := parent.OpenRoot(name + "/") // so that opening a FIFO does not wait
	if err != nil {
		return nil, err
	}
	there, err := parent.Lstat(name)
	if err == nil {
		var opened fs.FileInfo
		if opened, err = root.Stat("."); err == nil && !os.SameFile(there, opened) {
			err = &fs.PathError{Op: "open folder", Path: name, Err: errors.New("is a symbolic link")}
		}
	}
	if err != nil {
		root.Close()
		return nil, err
	}
	return root, nil
}

// removeSegments deletes a folder of segments and nothing else: only files with names that a
// Writer makes, then the folder if that left it empty.
func removeSegments(parent *os.Root, name string) error {
	root, err := openFolder(parent, name)
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
