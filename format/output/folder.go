package output

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// CheckFolder applies the rules to the folder whose name is the output's name with a suffix. With
// Force, it accepts an existing folder if isOurs is true for all entries. Errors use what as the
// noun for such entries, for example "segment". CheckFolder changes nothing.
func (d *Destination) CheckFolder(suffix, what string, isOurs func(fs.DirEntry) bool) error {
	path, name := d.path+suffix, d.name+suffix
	info, err := d.folder.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return WithPath(err, path)
	}
	refused := &Error{Path: path, Problem: NotRegular}
	if !info.IsDir() {
		refused.Description = fmt.Sprintf(
			"is %s, and %ss need a folder of this name", describeFileKind(info.Mode()), what)
		if info.Mode()&fs.ModeSymlink != 0 {
			refused.Description, _ = describeLinkTarget(path)
		}
		return refused
	}
	if refused.Description = d.describeOtherOwner(info); refused.Description != "" {
		refused.Problem = ForeignFile
		return refused
	}
	if !d.opt.Force {
		return &fs.PathError{Op: "create recording", Path: path, Err: ErrExists}
	}
	entries, err := fs.ReadDir(d.folder.FS(), name)
	if err != nil {
		return WithPath(err, path)
	}
	for _, e := range entries {
		if !isOurs(e) {
			refused.Description = "holds " + e.Name() + ", which is not a " + what
			return refused
		}
	}
	return nil
}

// OpenFolder opens the folder name in parent. It follows no symbolic link.
func OpenFolder(parent *os.Root, name string) (*os.Root, error) {
	root, err := parent.OpenRoot(name + "/") // the slash makes opening a FIFO fail instead of block
	if err != nil {
		return nil, err
	}
	there, err := parent.Lstat(name)
	if err == nil {
		var opened fs.FileInfo
		if opened, err = root.Stat("."); err == nil && !os.SameFile(there, opened) {
			isLink := errors.New("is a symbolic link")
			err = &fs.PathError{Op: "open folder", Path: name, Err: isLink}
		}
	}
	if err != nil {
		root.Close()
		return nil, err
	}
	return root, nil
}
