// Package output decides which files gpurec may write, creates them and replaces old ones.
//
// The rules hold for recordings and for every other file that gpurec writes. An output is a new
// name or, with Options.Force, a regular file, which the new file replaces. The following is
// refused before anything is created, changed or removed, with and without Force:
//   - a device, a socket, a FIFO or a folder;
//   - a symbolic link as the last part of the path, wherever it leads;
//   - a file of another user: for root in every folder, for others in a sticky folder;
//   - for root, a folder that belongs neither to root nor to the user behind sudo;
//   - for root, a folder that its group or everyone may write to, unless it is sticky, as /tmp is.
//     The private group of the user behind sudo (gid = uid) counts as that user;
//   - for root, a symbolic link of another user on the way to the folder.
//
// The folder is opened once and stays open. Files are created in it under temporary names and get
// the output's name when they are complete. Without Force, that step never replaces a file; with
// Force, it checks the name again. No file that existed before is ever opened. The rules for root
// apply on Linux only.
package output

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// ErrExists is the error for an output whose name is taken by an existing file.
var ErrExists = fs.ErrExist

// Owner is the user and group that own new files. A root process sets Owner when it writes for the
// user behind sudo. With the zero value, new files belong to the user of the process.
type Owner struct {
	UID, GID int
	Set      bool
}

// Options are the choices of Open.
type Options struct {
	// Force allows Open to accept an existing regular file, which Commit replaces.
	// Owner owns the new files.
	Force bool
	Owner Owner
}

// Problem is the rule that an output path violates.
type Problem int

// Values of Problem.
const (
	NotRegular    Problem = iota + 1 // a device, a socket or a FIFO
	IsFolder                         // a folder
	IsLink                           // a symbolic link
	ForeignFile                      // a file of another user
	ForeignFolder                    // other users may write to the folder, or own a link on the way to it
)

// Error is the error for a path that is refused as an output. Nothing was created, changed or
// removed.
type Error struct {
	Path        string
	Problem     Problem
	Description string // description of the problem: "is a device"
	Target      string // regular file at the end of a symbolic link, otherwise ""
}

func (e *Error) Error() string { return e.Path + " " + e.Description }

// Destination is the path of a file to write, with its folder open. It is not safe for concurrent
// use.
type Destination struct {
	path   string
	name   string // last part of path
	folder *os.Root
	opt    Options
}

// Open checks that a file can be written to path, and opens its folder. It creates nothing. Errors
// are *Error, match ErrExists, or are *fs.PathError with path.
func Open(path string, opt Options) (*Destination, error) {
	dir, name := filepath.Split(path)
	if dir == "" {
		dir = "."
	}
	if name == "" || name == "." || name == ".." {
		return nil, &Error{Path: path, Problem: IsFolder, Description: "is a folder"}
	}
	folder, err := openParentFolder(dir, opt.Owner)
	var refused *Error
	if errors.As(err, &refused) {
		refused.Path = path
		return nil, refused
	}
	if err != nil {
		return nil, WithPath(err, path)
	}
	d := &Destination{path: path, name: name, folder: folder, opt: opt}
	if err := d.checkExistingFile(); err != nil {
		folder.Close()
		return nil, err
	}
	return d, nil
}

// Path returns the argument of Open.
func (d *Destination) Path() string { return d.path }

// Name returns the last part of the path.
func (d *Destination) Name() string { return d.name }

// Folder returns the folder of the path. It is open until Close.
func (d *Destination) Folder() *os.Root { return d.folder }

// Close closes the folder. Files that were created stay.
func (d *Destination) Close() error { return d.folder.Close() }

// checkExistingFile applies the rules to the file that has the output's name now.
func (d *Destination) checkExistingFile() error {
	info, err := d.folder.Lstat(d.name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return WithPath(err, d.path)
	}
	if err := d.checkRegularFile(info); err != nil {
		return err
	}
	if !d.opt.Force {
		return &fs.PathError{Op: "create", Path: d.path, Err: ErrExists}
	}
	return nil
}

// checkRegularFile refuses everything but a regular file that may be replaced.
func (d *Destination) checkRegularFile(info fs.FileInfo) error {
	refused := &Error{Path: d.path, Problem: NotRegular}
	switch mode := info.Mode(); {
	case mode.IsRegular():
		if refused.Description = d.describeOtherOwner(info); refused.Description == "" {
			return nil
		}
		refused.Problem = ForeignFile
	case mode.IsDir():
		refused.Problem, refused.Description = IsFolder, "is a folder"
	case mode&fs.ModeSymlink != 0:
		refused.Problem = IsLink
		refused.Description, refused.Target = describeLinkTarget(d.path)
	default:
		refused.Description = "is " + describeFileKind(mode)
	}
	return refused
}

// describeOtherOwner describes the other user who owns a file or folder that is to be replaced. It
// returns "" if there is none.
func (d *Destination) describeOtherOwner(info fs.FileInfo) string {
	folder, err := d.folder.Stat(".")
	if err != nil {
		return "cannot be checked: " + err.Error()
	}
	return describeForeignOwner(info, folder, d.opt.Owner)
}

// describeLinkTarget describes the target of a symbolic link. For a link to a regular file it also
// returns the target's path.
func describeLinkTarget(path string) (what, target string) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "is a dangling symbolic link", ""
	case err != nil:
		return "is a symbolic link", ""
	}
	if info.Mode().IsRegular() {
		target, _ = filepath.EvalSymlinks(path) // the target is only for a hint
	}
	return "is a symbolic link to " + describeFileKind(info.Mode()), target
}

// describeFileKind names the kind of a file.
func describeFileKind(mode fs.FileMode) string {
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

// WithPath replaces the path in an error of package os by path. Errors of operations in an open
// folder have only a name there.
func WithPath(err error, path string) error {
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
