//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record"
	"github.com/gpurec/gpurec/record/hoststack"
	"golang.org/x/sys/unix"
)

// savedByTop is the time before now that the table saves.
const savedByTop = 5 * time.Minute

// connect lets the table save the last minutes of a session, and show the stacks of threads.
func (d *liveDisplay) connect(session *record.Session) {
	d.save = func() (string, error) { return saveLastMinutes(session) }
	d.threads = func(pid int32) ([]string, error) { return describeThreads(session, int(pid)) }
}

// saveLastMinutes writes the last minutes of a session to a new recording in the current folder, and returns its path.
func saveLastMinutes(session *record.Session) (path string, err error) {
	if err := unix.Faccessat(unix.AT_FDCWD, ".", unix.W_OK, unix.AT_EACCESS); err != nil {
		return "", fmt.Errorf("cannot write to the current folder: %w", err)
	}
	folder := filepath.Dir(session.Output())
	root, err := os.OpenRoot(folder)
	if err != nil {
		return "", err
	}
	defer root.Close()
	id := fmt.Sprintf(".gpurec-save-%d-%d", os.Getpid(), time.Now().UnixNano())
	defer func() {
		for _, state := range []string{format.PendingSuffix, format.SealingSuffix} {
			_ = format.RemoveCapture(root, format.Capture{ID: id, State: state}) // seal deletes it as a rule
		}
	}()
	if err := session.Freeze(root, id, savedByTop); err != nil {
		return "", err
	}
	path = "gpurec-top-" + time.Now().Format("20060102-150405") + format.CaptureSuffix
	return path, runSeal(filepath.Join(folder, id+format.SealingSuffix), path)
}

// describeThreads returns the stacks of all threads of a process as lines.
func describeThreads(session *record.Session, pid int) ([]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), threadsTimeout)
	defer cancel()
	snapshot, err := session.ThreadStacks(ctx, pid)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	if err := printStacksText(&text, []*hoststack.ProcessSnapshot{snapshot}, nil); err != nil {
		return nil, err
	}
	return strings.Split(strings.TrimRight(text.String(), "\n"), "\n"), nil
}

// threadsTimeout is the longest time in which the stacks of a process are read.
const threadsTimeout = 3 * time.Second
