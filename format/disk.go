package format

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// maxPendingWriteBytes bounds the data in memory that waits to be written to disk.
const maxPendingWriteBytes = 32 << 20

// diskQueue changes files in the segment folder. Its goroutine runs jobs in the order of enqueue. A
// disk that other programs keep busy, with a checkpoint for example, needs seconds for a write that
// usually takes milliseconds. The goroutine lets the recorder read events meanwhile.
type diskQueue struct {
	// root is the open segment folder.
	root  *os.Root
	chown func(*os.File) error // gives a new file to the recording's owner
	// frozen are the captures that receive links to new segments. Only the disk's goroutine uses it.
	frozen []*Frozen

	mu      sync.Mutex
	changed sync.Cond // signals that a disk job has ended
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

func newDiskQueue(root *os.Root, chown func(*os.File) error) *diskQueue {
	d := &diskQueue{root: root, chown: chown}
	d.changed.L = &d.mu
	return d
}

// enqueue runs do in the disk's goroutine after all earlier jobs. It blocks while more than
// maxPendingWriteBytes are queued.
func (d *diskQueue) enqueue(bytes int, do func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.pending > 0 && d.pending+bytes > maxPendingWriteBytes {
		d.changed.Wait()
	}
	d.pending += bytes
	d.jobs = append(d.jobs, diskJob{do, bytes})
	if !d.running {
		d.running = true
		go d.runJobs()
	}
}

// runJobs runs jobs until none is left.
func (d *diskQueue) runJobs() {
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

// waitForJobs blocks until all jobs have ended.
func (d *diskQueue) waitForJobs() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.running {
		d.changed.Wait()
	}
}

// storeError stores the error of a job for the next call of failures.
func (d *diskQueue) storeError(f *asyncFile, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failed = append(d.failed, diskFailure{f, err})
}

// takeFailures returns the errors since the last call, and forgets them.
func (d *diskQueue) takeFailures() []diskFailure {
	d.mu.Lock()
	defer d.mu.Unlock()
	failed := d.failed
	d.failed = nil
	return failed
}

// removeFile deletes a file of the segment folder. Only the disk's goroutine may call it.
func (d *diskQueue) removeFile(path string) {
	if err := d.root.Remove(filepath.Base(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.storeError(nil, err)
	}
}

// asyncFile is a new file in the segment folder that the disk's goroutine writes. Its name ends in
// unfinishedFileSuffix until it is complete. Readers ignore files with that suffix.
type asyncFile struct {
	disk *diskQueue
	// frozen is the capture in whose folder the file is. nil: it is in the segment folder.
	frozen *Frozen
	name   string // final name in the segment folder
	bytes  int64  // size of the file: the sum of all calls of Write
	next   []byte // the part of the file that is not queued for writing yet

	// Only the disk's goroutine uses file and err.
	file *os.File
	err  error

	onDisk bool // whether the complete file is on disk under its final name; guarded by disk.mu
}

// unfinishedFileSuffix ends the names of files that are being written.
const unfinishedFileSuffix = ".tmp"

// createFile returns a new file of the segment folder. The file appears on disk with the first
// write.
func (d *diskQueue) createFile(name string) *asyncFile { return &asyncFile{disk: d, name: name} }

// Write appends b to the file. It returns no error: disk.takeFailures reports errors of writing.
func (f *asyncFile) Write(b []byte) (int, error) {
	f.next = append(f.next, b...)
	f.bytes += int64(len(b))
	if len(f.next) >= parquetPageBytes {
		f.queueWrite(f.writeNow)
	}
	return len(b), nil
}

// queueWrite queues a job that gets the data written since the last job. A failed job deletes the
// file.
func (f *asyncFile) queueWrite(do func([]byte) error) {
	b := f.next
	f.next = nil
	f.disk.enqueue(len(b), func() {
		if f.err != nil {
			return // the write error is already reported
		}
		if f.err = do(b); f.err != nil {
			if f.frozen == nil { // an error of a capture does not end the recording
				f.disk.storeError(f, f.err)
			}
			f.removeUnfinished()
		}
	})
}

// writeNow writes b to the temporary file, and creates the file first if necessary.
func (f *asyncFile) writeNow(b []byte) (err error) {
	if f.file == nil {
		root := f.folder()
		if root == nil {
			return f.frozen.err // the folder could not be created
		}
		if f.file, err = root.OpenFile(
			f.name+unfinishedFileSuffix,
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

// queueFinish queues a job that syncs the file to disk and gives it its final name.
func (f *asyncFile) queueFinish() {
	f.queueWrite(func(b []byte) error {
		if err := f.writeNow(b); err != nil {
			return err
		}
		err := errors.Join(f.file.Sync(), f.file.Close())
		f.file = nil
		if err != nil {
			return err
		}
		if err := f.folder().Rename(f.name+unfinishedFileSuffix, f.name); err != nil {
			return err
		}
		if f.frozen == nil {
			for _, frozen := range f.disk.frozen {
				frozen.linkFinished(f.name)
			}
		}
		f.disk.mu.Lock()
		f.onDisk = true
		f.disk.mu.Unlock()
		return nil
	})
}

// queueRemoval queues a job that deletes the unfinished file.
func (f *asyncFile) queueRemoval() {
	f.queueWrite(func([]byte) error {
		f.removeUnfinished()
		return nil
	})
}

// removeUnfinished closes and deletes the unfinished file. Errors do not matter: readers ignore
// unfinished files.
func (f *asyncFile) removeUnfinished() {
	if f.file != nil {
		f.file.Close()
		f.file = nil
	}
	if root := f.folder(); root != nil {
		_ = root.Remove(f.name + unfinishedFileSuffix)
	}
}

// folder returns the folder of the file. It is nil if the folder of a capture could not be created.
func (f *asyncFile) folder() *os.Root {
	if f.frozen != nil {
		return f.frozen.root
	}
	return f.disk.root
}

// isOnDisk reports whether the complete file is on disk under its final name.
func (f *asyncFile) isOnDisk() bool {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	return f.onDisk
}
