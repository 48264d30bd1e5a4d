package format

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Errors of OpenIn for names that it refuses.
var (
	// ErrOutside is the error for a name that is absolute, or that leads out of the folder.
	ErrOutside = errors.New("is outside of the folder")
	// ErrNotRegular is the error for a pipe, a socket or a device.
	ErrNotRegular = errors.New("is neither a regular file nor a folder of segments")
)

// OpenIn opens a recording in the folder root. name is relative to root. Neither name nor a link can lead out of root,
// and OpenIn reads regular files only. When ctx is done, all reads of the recording fail with its error. The errors
// of OpenIn match ErrOutside, ErrNotRegular, the error of ctx, or those of Open.
func OpenIn(ctx context.Context, root *os.Root, name string) (*Recording, error) {
	path := filepath.Clean(filepath.FromSlash(name))
	if name == "" || !filepath.IsLocal(path) {
		return nil, &os.PathError{Op: "open recording", Path: name, Err: ErrOutside}
	}
	info, err := root.Stat(path)
	if err != nil {
		return nil, explainEscape(path, err)
	}
	rec := &Recording{Path: path, ctx: ctx}
	if info.IsDir() {
		folder, err := root.OpenRoot(path)
		if err != nil {
			return nil, err
		}
		defer folder.Close()
		_, err = rec.addSegments(folder, openRegular(folder))
		if err != nil {
			return nil, err
		}
	} else if err := rec.addFile(openRegular(root), path, path); err != nil {
		rec.Close()
		return nil, err
	}
	if err := ctx.Err(); err != nil { // a canceled read is no damaged segment
		rec.Close()
		return nil, err
	}
	return rec, nil
}

// explainEscape returns ErrOutside instead of err, an error of root.Stat, for a link that leads out of root. Package
// os has no error to compare with, but only this one is not from the kernel.
func explainEscape(path string, err error) error {
	var fromKernel syscall.Errno
	if errors.As(err, &fromKernel) {
		return err
	}
	return &os.PathError{Op: "open recording", Path: path, Err: ErrOutside}
}

// openRegular returns a function that opens regular files in root. A pipe without a writer does not block it.
func openRegular(root *os.Root) func(name string) (*os.File, error) {
	return func(name string) (*os.File, error) {
		refuse := func(info fs.FileInfo) error {
			if info.Mode().IsRegular() {
				return nil
			}
			return &os.PathError{Op: "open recording", Path: name, Err: ErrNotRegular}
		}
		info, err := root.Stat(name) // opening a device can have effects
		if err != nil {
			return nil, err
		}
		if err := refuse(info); err != nil {
			return nil, err
		}
		file, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
		if err != nil {
			return nil, err
		}
		if info, err = file.Stat(); err == nil { // the name may be that of another file by now
			err = refuse(info)
		}
		if err != nil {
			file.Close()
			return nil, err
		}
		return file, nil
	}
}

// readerOf returns a reader of a file of the recording, which fails once ctx of OpenIn is done.
func (r *Recording) readerOf(file *os.File) io.ReaderAt {
	if r.ctx == nil {
		return file
	}
	return &cancelableReader{r.ctx, file}
}

// cancelableReader reads a file until a context is done.
type cancelableReader struct {
	ctx  context.Context
	file *os.File
}

// ReadAt reads as os.File.ReadAt does. It returns the error of the context if that is done.
func (c *cancelableReader) ReadAt(p []byte, off int64) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.file.ReadAt(p, off)
}
