//go:build linux

package main

import (
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// topFolder is the folder in which top keeps what it records. A lock on it is held as long as top runs.
type topFolder struct {
	path string
	lock *os.File
}

const (
	topFolderPrefix = "gpurec-top-"
	// lockedAfter is the time after which a folder without a lock belongs to no process.
	lockedAfter = time.Minute
)

// openTopFolder creates a folder, and removes those of this user whose top was killed.
func openTopFolder() (*topFolder, error) {
	removeStaleTopFolders()
	path, err := os.MkdirTemp(topParent(), topFolderPrefix)
	if err != nil {
		return nil, err
	}
	lock, err := os.Open(path)
	if err == nil {
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	f := &topFolder{path, lock}
	if err != nil {
		f.remove()
		return nil, err
	}
	return f, nil
}

// topParent returns the folder for the folders of top. /tmp is in memory on many systems.
func topParent() string {
	const large = "/var/tmp"
	if info, err := os.Stat(large); os.Getenv("TMPDIR") == "" && err == nil && info.IsDir() {
		return large
	}
	return os.TempDir()
}

// remove removes the folder.
func (f *topFolder) remove() {
	os.RemoveAll(f.path)
	f.lock.Close()
}

// removeStaleTopFolders removes the folders of this user that no top has locked.
func removeStaleTopFolders() {
	paths, _ := filepath.Glob(filepath.Join(topParent(), topFolderPrefix+"*")) // fails only for an invalid pattern
	for _, path := range paths {
		info, err := os.Lstat(path)
		if err != nil || !info.IsDir() || time.Since(info.ModTime()) < lockedAfter {
			continue
		}
		if owner, ok := info.Sys().(*syscall.Stat_t); !ok || int(owner.Uid) != os.Geteuid() {
			continue
		}
		lock, err := os.Open(path)
		if err != nil {
			continue
		}
		if unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			os.RemoveAll(path)
		}
		lock.Close()
	}
}
