package format

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// maxPendingBytes bounds what waits for the disk.
const maxPendingBytes = 32 << 20

// disk does what is to be done in the folder of segments, in the order in which it was asked
// for, in a goroutine of its own: a disk that others keep busy, with a checkpoint of the recorded
// program for example, takes seconds for what usually takes milliseconds, and events keep coming.
type disk struct {
	root *os.Root
	own  func(*os.File) error // gives a file to its owner

	mu      sync.Mutex
	changed sync.Cond // a job is done
	jobs    []diskJob
	running bool // its goroutine, which ends when there is nothing to do
	pending int  // bytes that jobs hold
	failed  []diskFailure
}

// diskJob is something to do; bytes are held for it until then.
type diskJob struct {
	do    func()
	bytes int
}

// diskFailure is something that was not done; file is nil if it was nothing to a segment.
type diskFailure struct {
	file *laterFile
	err  error
}

func newDisk(root *os.Root, own func(*os.File) error) *disk {
	d := &disk{root: root, own: own}
	d.changed.L = &d.mu
	return d
}

// later has something done after all that was asked for before. It waits while too much is.
func (d *disk) later(bytes int, do func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.pending > 0 && d.pending+bytes > maxPendingBytes {
		d.changed.Wait()
	}
	d.pending += bytes
	d.jobs = append(d.jobs, diskJob{do, bytes})
	if !d.running {
		d.running = true
		go d.run()
	}
}

func (d *disk) run() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(d.jobs) > 0 {
		job := d.jobs[0]
		d.jobs = d.jobs[1:]
		d.mu.Unlock()
		job.do()
		d.mu.Lock()
		d.pending -= job.bytes
		d.changed.Broadcast()
	}
	d.jobs, d.running = nil, false
	d.changed.Broadcast()
}

// wait returns when everything is done.
func (d *disk) wait() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.running {
		d.changed.Wait()
	}
}

// fail notes what was not done.
func (d *disk) fail(f *laterFile, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failed = append(d.failed, diskFailure{f, err})
}

// failures returns what was not done since the last time that it was asked.
func (d *disk) failures() []diskFailure {
	d.mu.Lock()
	defer d.mu.Unlock()
	failed := d.failed
	d.failed = nil
	return failed
}

// remove deletes a file of the folder, in the disk's goroutine.
func (d *disk) remove(path string) {
	if err := d.root.Remove(filepath.Base(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.fail(nil, err)
	}
}

// laterFile is a new file of the folder, which is written when the disk comes to it. Until it
// is finished it has a name that readers pass over.
type laterFile struct {
	disk  *disk
	name  string // in the folder
	bytes int64  // written so far
	next  []byte // of those, what the disk does not have yet

	// Of the disk's goroutine.
	file *os.File
	err  error

	done bool // under its name on disk; guarded by disk.mu
}

const unfinishedSuffix = ".tmp"

func (d *disk) create(name string) *laterFile { return &laterFile{disk: d, name: name} }

// Write takes b; that it was not written is told by disk.failures.
func (f *laterFile) Write(b []byte) (int, error) {
	f.next = append(f.next, b...)
	f.bytes += int64(len(b))
	if len(f.next) >= pageBytes {
		f.hand(f.write)
	}
	return len(b), nil
}

// hand has something done with what was written since the last time.
func (f *laterFile) hand(do func([]byte) error) {
	b := f.next
	f.next = nil
	f.disk.later(len(b), func() {
		if f.err != nil {
			return // it is told already
		}
		if f.err = do(b); f.err != nil {
			f.disk.fail(f, f.err)
			f.remove()
		}
	})
}

func (f *laterFile) write(b []byte) (err error) {
	if f.file == nil {
		if f.file, err = f.disk.root.OpenFile(
			f.name+unfinishedSuffix,
			os.O_CREATE|os.O_EXCL|os.O_WRONLY,
			0o600,
		); err != nil {
			return err
		}
		if err := f.disk.own(f.file); err != nil {
			return err
		}
	}
	_, err = f.file.Write(b)
	return err
}

// finish has the file brought to disk and given its name.
func (f *laterFile) finish() {
	f.hand(func(b []byte) error {
		if err := f.write(b); err != nil {
			return err
		}
		err := errors.Join(f.file.Sync(), f.file.Close())
		f.file = nil
		if err != nil {
			return err
		}
		if err := f.disk.root.Rename(f.name+unfinishedSuffix, f.name); err != nil {
			return err
		}
		f.disk.mu.Lock()
		f.done = true
		f.disk.mu.Unlock()
		return nil
	})
}

// drop has the file deleted that is not finished.
func (f *laterFile) drop() {
	f.hand(func([]byte) error {
		f.remove()
		return nil
	})
}

// remove deletes what there is of the unfinished file; a rest is passed over by readers.
func (f *laterFile) remove() {
	if f.file != nil {
		f.file.Close()
		f.file = nil
	}
	_ = f.disk.root.Remove(f.name + unfinishedSuffix)
}

// isDone reports whether the file is on disk under its name.
func (f *laterFile) isDone() bool {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	return f.done
}
