package output

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
)

// File is an open output file. It has a temporary name until Commit.
type File struct {
	*os.File
	to        *Destination
	temporary string // name in the folder of to
	closesTo  bool
}

// Create opens a destination and creates a file in it. Commit or Discard closes both.
func Create(path string, opt Options) (*File, error) {
	to, err := Open(path, opt)
	if err != nil {
		return nil, err
	}
	file, err := to.Create()
	if err != nil {
		to.Close()
		return nil, err
	}
	file.closesTo = true
	return file, nil
}

// maxTemporaryPrefixBytes is the length of the output's name that a temporary name includes. It
// keeps temporary names within the 255 bytes of file systems.
const maxTemporaryPrefixBytes = 200

// Create creates a file of mode 0600 with a temporary name in the folder. Call Commit or Discard on
// it.
func (d *Destination) Create() (*File, error) {
	prefix := d.name[:min(len(d.name), maxTemporaryPrefixBytes)]
	for {
		name := fmt.Sprintf("%s.%d.tmp", prefix, rand.Uint32())
		file, err := d.folder.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return nil, WithPath(err, d.path)
		}
		if owner := d.opt.Owner; owner.Set {
			_ = file.Chown(owner.UID, owner.GID) // not every filesystem has owners
		}
		return &File{File: file, to: d, temporary: name}, nil
	}
}

// Path returns the path of the file after Commit.
func (f *File) Path() string { return f.to.path }

// Commit closes the file and gives it the output's name. On error, it removes the file. Errors are
// those of Open.
func (f *File) Commit() error {
	err := f.Close()
	if err == nil {
		err = f.to.renameToOutput(f.temporary)
	}
	if err != nil {
		f.Discard()
		return err
	}
	f.closeDestination()
	return nil
}

// Discard closes and removes a file that was not committed.
func (f *File) Discard() {
	_ = f.Close() // after a failed Commit the file is already closed
	_ = f.to.folder.Remove(f.temporary)
	f.closeDestination()
}

// closeDestination closes the destination if Create opened it for this file.
func (f *File) closeDestination() {
	if f.closesTo {
		_ = f.to.Close() // closing a folder loses no data
	}
}

// renameToOutput renames a file of the folder to the output's name. Without Force it creates a hard
// link, because the kernel never replaces a file by a link. Then it removes the temporary name.
func (d *Destination) renameToOutput(temporary string) error {
	if !d.opt.Force {
		switch err := d.folder.Link(temporary, d.name); {
		case err == nil:
			if err := d.folder.Remove(temporary); err != nil {
				return WithPath(err, d.path)
			}
			return nil
		case errors.Is(err, fs.ErrExist):
			return &fs.PathError{Op: "create", Path: d.path, Err: ErrExists}
		} // or the filesystem has no hard links
	}
	if err := d.checkExistingFile(); err != nil {
		return err
	}
	if err := d.folder.Rename(temporary, d.name); err != nil {
		return WithPath(err, d.path)
	}
	return nil
}
