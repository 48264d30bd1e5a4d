package format

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// The rules of outputs, for recordings and for every other file that gpurec writes:
//
// An output is a new name or, with Options.Force, a regular file, which a new one replaces.
// Everything else is refused before anything is created, changed or removed, also with Force:
//   - a device, a socket, a FIFO, a folder;
//   - a link as the last name, to whatever it leads, also to nothing;
//   - a file of another user, for root everywhere, for others in a sticky folder;
//   - for root, a folder that belongs neither to root nor to the user behind sudo;
//   - for root, a folder that its group or everyone may write to, unless it is sticky, as /tmp
//     is. The group of its own that the user behind sudo has (gid = uid) is no other user;
//   - for root, a link on the way to the folder that belongs to another user.
//
// The folder is opened once and kept open. Files are made in it under names of their own and get
// the output's name when they are complete. Without Force that step replaces nothing; with Force
// the name is checked again. No file that was there is ever opened. The rules for root hold on
// Linux.

// OutputProblem says which rule refuses an output.
type OutputProblem int

// The problems.
const (
	OutputNotRegular    OutputProblem = iota + 1 // a device, a socket, a FIFO
	OutputIsFolder                               // a folder
	OutputIsLink                                 // a link, or what it leads to is missing
	OutputForeignFile                            // a file of another user
	OutputForeignFolder                          // other users may write to the folder, or led to it
)

// OutputError says why a path is refused as an output. Nothing was created, changed or removed.
type OutputError struct {
	Path    string
	Problem OutputProblem
	What    string // what is wrong with the path, as in "is a device"
	Target  string // of a link to a regular file: that file
}

func (e *OutputError) Error() string { return e.Path + " " + e.What }

// Output is the place of a file to write. It is not safe for concurrent use.
type Output struct {
	path   string
	name   string // in folder
	folder *os.Root
	opt    Options
}

// OpenOutput checks that a file can be written to path and opens its folder; Close closes it. It
// creates nothing. Errors are *OutputError, match ErrExists, or are *fs.PathError of path.
func OpenOutput(path string, opt Options) (*Output, error) {
	dir, name := filepath.Split(path)
	if dir == "" {
		dir = "."
	}
	if name == "" || name == "." || name == ".." {
		return nil, &OutputError{Path: path, Problem: OutputIsFolder, What: "is a folder"}
	}
	folder, err := openOutputFolder(dir, opt.Owner)
	var refused *OutputError
	if errors.As(err, &refused) {
		refused.Path = path
		return nil, refused
	}
	if err != nil {
		return nil, outputError(path, err)
	}
	o := &Output{path: path, name: name, folder: folder, opt: opt}
	if err := o.check(); err != nil {
		folder.Close()
		return nil, err
	}
	return o, nil
}

// Path returns the path that OpenOutput was given.
func (o *Output) Path() string { return o.path }

// Close closes the folder. Files that were created stay.
func (o *Output) Close() error { return o.folder.Close() }

// check applies the rules to what has the output's name now.
func (o *Output) check() error {
	info, err := o.folder.Lstat(o.name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return outputError(o.path, err)
	}
	if err := o.checkRegular(info); err != nil {
		return err
	}
	if !o.opt.Force {
		return &fs.PathError{Op: "create", Path: o.path, Err: ErrExists}
	}
	return nil
}

// checkRegular refuses what is no regular file that may be replaced.
func (o *Output) checkRegular(info fs.FileInfo) error {
	refused := &OutputError{Path: o.path, Problem: OutputNotRegular}
	switch mode := info.Mode(); {
	case mode.IsRegular():
		if refused.What = o.foreign(info); refused.What == "" {
			return nil
		}
		refused.Problem = OutputForeignFile
	case mode.IsDir():
		refused.Problem, refused.What = OutputIsFolder, "is a folder"
	case mode&fs.ModeSymlink != 0:
		refused.Problem = OutputIsLink
		refused.What, refused.Target = describeLink(o.path)
	default:
		refused.What = "is " + kindOf(mode)
	}
	return refused
}

// foreign says to which other user a file or folder belongs that is to be replaced; "": to none.
func (o *Output) foreign(info fs.FileInfo) string {
	folder, err := o.folder.Stat(".")
	if err != nil {
		return "cannot be checked: " + err.Error()
	}
	return foreignFile(info, folder, o.opt.Owner)
}

// describeLink says what a link is, and the path of a regular file that it leads to.
func describeLink(path string) (what, target string) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "is a dangling symbolic link", ""
	case err != nil:
		return "is a symbolic link", ""
	}
	if info.Mode().IsRegular() {
		target, _ = filepath.EvalSymlinks(path) // for a hint
	}
	return "is a symbolic link to " + kindOf(info.Mode()), target
}

// kindOf names what is not a file to write to.
func kindOf(mode fs.FileMode) string {
	switch {
	case mode.IsRegular():
		return "a regular file"
	case mode.IsDir():
		return "a folder"
	case mode&fs.ModeDevice != 0:
		return "a device"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeNamedPipe != 0:
		return "a FIFO"
	}
	return "no regular file"
}

// outputError gives an error of package os the path that the user knows.
func outputError(path string, err error) error {
	var pathError *fs.PathError
	var linkError *os.LinkError
	switch {
	case errors.As(err, &pathError):
		return &fs.PathError{Op: pathError.Op, Path: path, Err: pathError.Err}
	case errors.As(err, &linkError):
		return &fs.PathError{Op: linkError.Op, Path: path, Err: linkError.Err}
	}
	return &fs.PathError{Op: "write", Path: path, Err: err}
}

// OutputFile is a file that is being written. It has a name of its own until Commit.
type OutputFile struct {
	*os.File
	out       *Output
	temporary string
	closesOut bool
}

// CreateOutput is OpenOutput and Create in one; the file's end closes the folder.
func CreateOutput(path string, opt Options) (*OutputFile, error) {
	out, err := OpenOutput(path, opt)
	if err != nil {
		return nil, err
	}
	file, err := out.Create()
	if err != nil {
		out.Close()
		return nil, err
	}
	file.closesOut = true
	return file, nil
}

// maxNameBytes is what a temporary name keeps of the output's name, so that it is not too long.
const maxNameBytes = 200

// Create creates a file, of mode 0600, in the output's folder. Commit or Discard ends it.
func (o *Output) Create() (*OutputFile, error) {
	prefix := o.name[:min(len(o.name), maxNameBytes)]
	for {
		name := fmt.Sprintf("%s.%d.tmp", prefix, rand.Uint32())
		file, err := o.folder.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return nil, outputError(o.path, err)
		}
		if owner := o.opt.Owner; owner.Set {
			_ = file.Chown(owner.UID, owner.GID) // not every filesystem has owners
		}
		return &OutputFile{File: file, out: o, temporary: name}, nil
	}
}

// Path returns the path that the file will have.
func (f *OutputFile) Path() string { return f.out.path }

// Commit closes the file and gives it the output's name. If that fails nothing is left of the
// file. Errors are those of OpenOutput.
func (f *OutputFile) Commit() error {
	err := f.Close()
	if err == nil {
		err = f.out.place(f.temporary)
	}
	if err != nil {
		f.Discard()
		return err
	}
	f.end()
	return nil
}

// Discard deletes the file, which was not committed.
func (f *OutputFile) Discard() {
	_ = f.Close() // it may be closed
	_ = f.out.folder.Remove(f.temporary)
	f.end()
}

func (f *OutputFile) end() {
	if f.closesOut {
		_ = f.out.Close() // only a folder
	}
}

// place gives a file of the folder the output's name. Without Force it makes a second name, for
// which the kernel replaces nothing, and removes the first.
func (o *Output) place(temporary string) error {
	if !o.opt.Force {
		switch err := o.folder.Link(temporary, o.name); {
		case err == nil:
			if err := o.folder.Remove(temporary); err != nil {
				return outputError(o.path, err)
			}
			return nil
		case errors.Is(err, fs.ErrExist):
			return &fs.PathError{Op: "create", Path: o.path, Err: ErrExists}
		} // or the filesystem has no second names
	}
	if err := o.check(); err != nil {
		return err
	}
	if err := o.folder.Rename(temporary, o.name); err != nil {
		return outputError(o.path, err)
	}
	return nil
}
