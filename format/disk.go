package format

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// maxPendingBytes bounds the data in memory that waits to be written to disk.
const maxPendingBytes = 32 << 20

// disk changes files in the segment folder. Its goroutine runs jobs in the order of enqueue. A disk
// that other programs keep busy, with a checkpoint for example, needs seconds for a write that
// usually takes milliseconds. The goroutine lets the recorder read events meanwhile.
type disk struct {
	// root is the open segment folder.
	root  *os.Root
	chown func(*os.File) error // gives a new file to the recording's owner

	mu      sync.Mutex
	changed sync.Cond // signals that a job has ended
	jobs    []diskJob
	running bool // whether the goroutine runs; it ends when jobs is empty
	pending int  // bytes of data that jobs hold
	failed  []diskFailure
}

// diskJob is one change to the segment folder. bytes is the size of the data that do writes.
type diskJob struct {
	do    func()
	bytes int
}

// diskFailure is the error of one job. file is nil if the job was not about a segment file.
type diskFailure struct {
	file *asyncFile
	err  error
}

func newDisk(root *os.Root, chown func(*os.File) error) *disk {
	d := &disk{root: root, chown: chown}
	d.changed.L = &d.mu
	return d
}

// enqueue runs do in the disk's goroutine after all earlier jobs. It blocks while more than
// maxPendingBytes are queued.
func (d *disk) enqueue(bytes int, do func()) {
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

// run runs jobs until none is left.
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

// wait blocks until all jobs have ended.
func (d *disk) wait() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.running {
		d.changed.Wait()
	}
}

// fail stores the error of a job for the next call of failures.
func (d *disk) fail(f *asyncFile, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failed = append(d.failed, diskFailure{f, err})
}

// failures returns the errors since the last call, and forgets them.
func (d *disk) failures() []diskFailure {
	d.mu.Lock()
	defer d.mu.Unlock()
	failed := d.failed
	d.failed = nil
	return failed
}

// remove deletes a file of the segment folder. Only the disk's goroutine may call it.
func (d *disk) remove(path string) {
	if err := d.root.Remove(filepath.Base(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.fail(nil, err)
	}
}

// asyncFile is a new file in the segment folder that the disk's goroutine writes. Its name ends in
// unfinishedSuffix until it is complete. Readers ignore files with that suffix.
type asyncFile struct {
	disk  *disk
	name  string // final name in the segment folder
	bytes int64  // size of the file: the sum of all calls of Write
	next  []byte // the part of the file that is not queued for writing yet

	// Only the disk's goroutine uses file and err.
	file *os.File
	err  error

	onDisk bool // whether the complete file is on disk under its final name; guarded by disk.mu
}

// unfinishedSuffix ends the names of files that are being written.
const unfinishedSuffix = ".tmp"

// create returns a new file of the segment folder. The file appears on disk with the first write.
func (d *disk) create(name string) *asyncFile { return &asyncFile{disk: d, name: name} }

// Write appends b to the file. It returns no error: disk.failures reports errors of writing.
func (f *asyncFile) Write(b []byte) (int, error) {
	f.next = append(f.next, b...)
	f.bytes += int64(len(b))
	if len(f.next) >= pageBytes {
		f.submit(f.write)
	}
	return len(b), nil
}

// submit queues a job that gets the data written since the last job. A failed job deletes the file.
func (f *asyncFile) submit(do func([]byte) error) {
	b := f.next
	f.next = nil
	f.disk.enqueue(len(b), func() {
		if f.err != nil {
			return // already reported
		}
		if f.err = do(b); f.err != nil {
			f.disk.fail(f, f.err)
			f.remove()
		}
	})
}

// write writes b to the temporary file, and creates the file first if necessary.
func (f *asyncFile) write(b []byte) (err error) {
	if f.file == nil {
		if f.file, err = f.disk.root.OpenFile(
			f.name+unfinishedSuffix,
			os.O_CREATE|os.O_EXCL|os.O_WRONLY,
			0o600,
		); err != nil {
			return err
		}
		if err := f.disk.chown(f.file); err != nil {
			return err
		}
	}
	_, err = f.file.Write(b)
	return err
}

// finish queues a job that syncs the file to disk and gives it its final name.
func (f *asyncFile) finish() {
	f.submit(func(b []byte) error {
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
		f.onDisk = true
		f.disk.mu.Unlock()
		return nil
	})
}

// drop queues a job that deletes the unfinished file.
func (f *asyncFile) drop() {
	f.submit(func([]byte) error {
		f.remove()
		return nil
	})
}

// remove closes and deletes the unfinished file. Errors do not matter: readers ignore unfinished
// files.
func (f *asyncFile) remove() {
	if f.file != nil {
		f.file.Close()
		f.file = nil
	}
	_ = f.disk.root.Remove(f.name + unfinishedSuffix)
}

// isOnDisk reports whether the complete file is on disk under its final name.
func (f *asyncFile) isOnDisk() bool {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	return f.onDisk
}
