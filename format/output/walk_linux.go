package output

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// maxSymlinksToFolder is the largest number of symbolic links on the way to a folder. The kernel
// has the same limit.
const maxSymlinksToFolder = 40

// openParentFolder opens the folder of an output. For root it returns an *Error if another user may write to the
// folder, or owns a symbolic link on the way to it.
func openParentFolder(dir string, owner Owner) (*os.Root, error) {
	if os.Geteuid() != 0 {
		return os.OpenRoot(dir)
	}
	folder, err := walkToFolder(dir, owner)
	if err != nil {
		return nil, err
	}
	if err := checkFolderOwner(folder, dir, owner); err != nil {
		folder.Close()
		return nil, err
	}
	return folder, nil
}

// isTrustedUser reports whether root may follow symbolic links of the user uid, write to the user's
// folders and replace the user's files.
func isTrustedUser(uid uint32, owner Owner) bool {
	return int64(uid) == int64(os.Geteuid()) || owner.Set && int64(uid) == int64(owner.UID)
}

// unixStat returns the stat structure of a file, with owner and mode bits.
func unixStat(info fs.FileInfo) *syscall.Stat_t { return info.Sys().(*syscall.Stat_t) }

// checkFolderOwner applies root's rules to an open folder. dir is the folder's path.
func checkFolderOwner(folder *os.Root, dir string, owner Owner) error {
	info, err := folder.Stat(".")
	if err != nil {
		return err
	}
	named, err := os.Stat(dir)
	if err != nil {
		return err
	}
	dir = filepath.Clean(dir)
	var why string
	st := unixStat(info)
	switch isOwnGroup := owner.Set && owner.UID == owner.GID && int64(st.Gid) == int64(owner.GID); {
	case !os.SameFile(info, named): // a link in /proc can lead to another file than its text
		why = fmt.Sprintf("folder %s is not the target of its path", dir)
	case !isTrustedUser(st.Uid, owner):
		why = fmt.Sprintf("folder %s belongs to user %d", dir, st.Uid)
	case st.Mode&syscall.S_ISVTX != 0:
		return nil
	case st.Mode&syscall.S_IWOTH != 0:
		why = "everyone may replace files in folder " + dir
	case st.Mode&syscall.S_IWGRP != 0 && !isOwnGroup:
		why = fmt.Sprintf("group %d may replace files in folder %s", st.Gid, dir)
	default:
		return nil
	}
	return newForeignFolderError(why)
}

// newForeignFolderError returns the error for a folder that other users may change.
func newForeignFolderError(why string) *Error {
	return &Error{Problem: ForeignFolder, Description: "is not safe to write: " + why}
}

// describeForeignOwner names the other user who owns a file. It returns "" if the user of the
// process owns the file. It also returns "" if the folder's permissions let the process replace the
// file.
func describeForeignOwner(file, folder fs.FileInfo, owner Owner) string {
	matters := os.Geteuid() == 0 || unixStat(folder).Mode&syscall.S_ISVTX != 0
	if uid := unixStat(file).Uid; matters && !isTrustedUser(uid, owner) {
		return fmt.Sprintf("belongs to user %d", uid)
	}
	return ""
}

// walkToFolder opens a folder one path element at a time, to check each symbolic link before it
// follows the link.
func walkToFolder(dir string, owner Owner) (*os.Root, error) {
	start := "."
	if filepath.IsAbs(dir) {
		start = "/"
	}
	at, err := os.OpenRoot(start)
	if err != nil {
		return nil, err
	}
	rest := strings.Split(dir, "/")
	for links := 0; len(rest) > 0; {
		next, target, err := enterPathElement(at, rest[0], owner)
		if err == nil && target != "" {
			if links++; links > maxSymlinksToFolder {
				err = &fs.PathError{Op: "open", Path: dir, Err: syscall.ELOOP}
			} else if filepath.IsAbs(target) {
				next, err = os.OpenRoot("/")
			}
		}
		if err != nil {
			at.Close()
			return nil, err
		}
		if rest = rest[1:]; target != "" {
			rest = append(strings.Split(target, "/"), rest...)
		}
		if next != nil {
			at.Close()
			at = next
		}
	}
	return at, nil
}

// enterPathElement opens the folder name in the folder at. If name is a symbolic link, step returns
// its target instead. For "" and "." it returns neither.
func enterPathElement(at *os.Root, name string, owner Owner) (next *os.Root, target string, err error) {
	switch name {
	case "", ".":
		return nil, "", nil
	case "..": // OpenRoot refuses to leave a Root
		self, err := at.Open(".")
		if err != nil {
			return nil, "", err
		}
		defer self.Close()
		next, err = os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d/..", self.Fd()))
		return next, "", err
	}
	info, err := at.Lstat(name)
	if err != nil {
		return nil, "", err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		if uid := unixStat(info).Uid; !isTrustedUser(uid, owner) {
			return nil, "", newForeignFolderError(fmt.Sprintf(
				"the symbolic link %s on the way there belongs to user %d", name, uid))
		}
		target, err = at.Readlink(name)
		return nil, target, err
	}
	next, err = OpenFolder(at, name)
	return next, "", err
}
