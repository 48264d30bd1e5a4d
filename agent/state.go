//go:build linux

package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/output"
)

// Names in the folder of the state.
const (
	ringFolder     = "ring"
	capturesFolder = "captures"
	lockFile       = "lock"
)

// ErrRunning is the error for a state folder that another agent uses.
var ErrRunning = errors.New("another agent uses the folder")

// state is the open folder of an agent.
type state struct {
	path           string
	lock           *os.File
	ring, captures *os.Root

	mu      sync.Mutex // held while captures are deleted
	adopted []adoptedRing
}

// adoptedRing is the folder of segments of an earlier agent.
type adoptedRing struct {
	name   string
	lastNs int64 // time of its newest segment, Unix ns
	bytes  int64
}

// openState creates the folders that are missing, takes the lock, and opens them. Only the user of the agent may write
// to the folder. socket is that of an agent that may be running.
func openState(path, socket string) (*state, error) {
	if err := os.MkdirAll(path, 0o750); err != nil {
		return nil, err
	}
	s := &state{path: path}
	for _, folder := range []struct {
		name string
		root **os.Root
	}{{ringFolder, &s.ring}, {capturesFolder, &s.captures}} {
		if err := os.Mkdir(filepath.Join(path, folder.name), 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
			s.close()
			return nil, err
		}
		// output.Open refuses folders in which other users may write.
		to, err := output.Open(filepath.Join(path, folder.name, "file"), output.Options{Force: true})
		if err != nil {
			s.close()
			return nil, err
		}
		*folder.root = to.Folder()
	}
	if err := errors.Join(s.checkFileSystem(), s.takeLock(socket)); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// maxLockWait bounds the wait for the end of an agent that was killed: the kernel removes its probes first.
const maxLockWait = time.Minute

// takeLock takes the lock of the folder. It returns ErrRunning if an agent holds it and answers on its socket.
func (s *state) takeLock(socket string) (err error) {
	name := filepath.Join(s.path, lockFile)
	if s.lock, err = os.OpenFile(name, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600); err != nil {
		return err
	}
	for end := time.Now().Add(maxLockWait); ; time.Sleep(100 * time.Millisecond) {
		err := unix.Flock(int(s.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil || !errors.Is(err, unix.EWOULDBLOCK) {
			return err
		}
		if isAnswering(socket) || time.Now().After(end) {
			return fmt.Errorf("lock %s: %w", s.path, ErrRunning)
		}
	}
}

// isAnswering reports whether an agent answers. The socket of a killed agent accepts connections until the kernel has
// removed its probes.
func isAnswering(socket string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_, err := ReadStatus(ctx, socket)
	return err == nil
}

// checkFileSystem makes sure that links between ring and captures are possible.
func (s *state) checkFileSystem() error {
	var ring, captures unix.Stat_t
	if err := errors.Join(
		unix.Stat(filepath.Join(s.path, ringFolder), &ring),
		unix.Stat(filepath.Join(s.path, capturesFolder), &captures),
	); err != nil {
		return err
	}
	if ring.Dev != captures.Dev {
		return fmt.Errorf(
			"%s and %s in %s are in two file systems: captures are links",
			ringFolder,
			capturesFolder,
			s.path,
		)
	}
	return nil
}

func (s *state) close() {
	for _, root := range []*os.Root{s.ring, s.captures} {
		if root != nil {
			root.Close()
		}
	}
	if s.lock != nil {
		s.lock.Close() // releases the lock
	}
}

// newRing returns the path of the recording of a new ring.
func (s *state) newRing(now time.Time) string {
	return filepath.Join(s.path, ringFolder, now.UTC().Format("20060102T150405.000000Z")+".parquet")
}

// adoptRings finds the rings of earlier agents.
func (s *state) adoptRings() error {
	entries, err := fs.ReadDir(s.ring.FS(), ".")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.IsDir() || !strings.HasSuffix(e.Name(), format.SegmentSuffix) {
			continue
		}
		r := adoptedRing{name: e.Name()}
		files, err := fs.ReadDir(s.ring.FS(), e.Name())
		if err != nil {
			return err
		}
		for _, f := range files {
			if info, err := f.Info(); err == nil {
				r.bytes += info.Size()
				r.lastNs = max(r.lastNs, info.ModTime().UnixNano())
			}
		}
		s.adopted = append(s.adopted, r)
	}
	return nil
}

// dropRings deletes rings of earlier agents whose newest event is older than keep, or all with all.
func (s *state) dropRings(keep time.Duration, now time.Time, all bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var failed error
	s.adopted = slices.DeleteFunc(s.adopted, func(r adoptedRing) bool {
		if !all && now.UnixNano()-r.lastNs < keep.Nanoseconds() {
			return false
		}
		failed = errors.Join(failed, format.RemoveSegments(s.ring, r.name))
		return true
	})
	return failed
}

// addBefore makes a capture of the rings of earlier agents, if a trigger asks for a time before the start of the ring.
// It returns the IDs of the captures.
func (s *state) addBefore(t format.Trigger, ringStart time.Time) (ids []string, failed error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.FromNs() >= ringStart.UnixNano() {
		return nil, nil
	}
	for i, r := range s.adopted {
		if r.lastNs < t.FromNs() {
			continue
		}
		before := t
		before.ID, before.Merged = fmt.Sprintf("%s-before%d", t.ID, len(s.adopted)-i), nil
		ring, err := output.OpenFolder(s.ring, r.name)
		if err == nil {
			err = errors.Join(format.FreezeFolder(ring, s.captures, &before), ring.Close())
		}
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		ids = append(ids, before.ID)
	}
	return ids, failed
}

// expire deletes captures that are too old or too large together. It returns false if the limits are
// still exceeded.
func (s *state) expire(limits Captures, now time.Time) (enough bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, err := format.ListCaptures(s.captures)
	if err != nil {
		return false, err
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(s.path, &fs); err != nil {
		return false, err
	}
	expired, enough := chooseExpired(all, space{
		limits, int64(fs.Bavail) * fs.Bsize, int64(fs.Blocks) * fs.Bsize,
	}, now)
	for _, c := range expired {
		err = errors.Join(err, format.RemoveCapture(s.captures, c))
	}
	return enough, err
}
