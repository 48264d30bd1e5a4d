package format

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/gpurec/gpurec/format/output"
)

// Capture is a finished or unfinished capture in a folder of captures.
type Capture struct {
	ID string
	// State is PendingSuffix, SealingSuffix or CaptureSuffix.
	State string
	// Bytes is the size of its files. Segments of a ring that it shares count, too.
	Bytes int64
	// Trigger is read from the folder. It is nil for files, and for folders without one.
	Trigger *Trigger
}

// ListCaptures returns the captures in a folder, in the order of their names.
func ListCaptures(captures *os.Root) ([]Capture, error) {
	entries, err := fs.ReadDir(captures.FS(), ".")
	if err != nil {
		return nil, err
	}
	var list []Capture
	for _, e := range entries {
		state := filepath.Ext(e.Name())
		c := Capture{ID: e.Name()[:len(e.Name())-len(state)], State: state}
		switch {
		case e.IsDir() && (state == PendingSuffix || state == SealingSuffix):
			c.readFolder(captures, e.Name())
		case e.Type().IsRegular() && state == CaptureSuffix:
			if info, err := e.Info(); err == nil {
				c.Bytes = info.Size()
			}
		default:
			continue
		}
		list = append(list, c)
	}
	return list, nil
}

// readFolder reads the size and the trigger of a folder. What cannot be read stays empty.
func (c *Capture) readFolder(captures *os.Root, name string) {
	root, err := captures.OpenRoot(name)
	if err != nil {
		return
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			c.Bytes += info.Size()
		}
	}
	if t, err := readTrigger(root); err == nil {
		c.Trigger = t
	}
}

// maxTriggerBytes bounds the file with the trigger.
const maxTriggerBytes = 1 << 20

// readTrigger reads the trigger of a capture's folder.
func readTrigger(root *os.Root) (*Trigger, error) {
	info, err := root.Lstat(triggerFile)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxTriggerBytes {
		return nil, &fs.PathError{Op: "read", Path: triggerFile, Err: ErrNotRegular}
	}
	text, err := root.ReadFile(triggerFile)
	if err != nil {
		return nil, err
	}
	t := new(Trigger)
	if err := json.Unmarshal(text, t); err != nil {
		return nil, fmt.Errorf("read %s: %w", triggerFile, err)
	}
	return t, nil
}

// Seal merges the folder of a capture, ID.sealing or ID.pending, into the file path, and keeps the folder.
// It replaces an existing file, which is from an earlier call that was interrupted. The capture of a
// killed recorder gets the state CompleteRecovered. damaged has one error for each segment that it left out.
// It returns an *output.Error if gpurec may not write to path.
func Seal(folder, path string, owner Owner) (t *Trigger, damaged []error, err error) {
	out, err := output.Open(path, output.Options{Force: true, Owner: owner})
	if err != nil {
		return nil, nil, err
	}
	defer out.Close()
	root, err := openCapture(folder)
	if err != nil {
		return nil, nil, err
	}
	defer root.Close()
	rec, err := openSegmentFolder(root, folder)
	if err != nil {
		return nil, nil, err
	}
	defer rec.Close()
	meta := rec.Meta
	meta.Complete = CompleteFrozen
	if meta.Trigger == nil { // the recorder was killed before it finished the capture
		meta.Complete = CompleteRecovered
		if meta.Trigger, err = readTrigger(root); err != nil {
			return nil, nil, err
		}
		meta.Trigger.Cut = true
	}
	meta.countMissingAsLost(rec)
	damaged, err = mergeSegments(rec, out, &meta)
	return meta.Trigger, damaged, err
}

// OpenCapture opens the folder of a capture, ID.sealing or ID.pending, for reading. The folder may be deleted while the
// recording is open. Its errors are those of Open.
func OpenCapture(folder string) (*Recording, error) {
	root, err := openCapture(folder)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	rec, err := openSegmentFolder(root, folder)
	if err == nil {
		rec.Meta.Complete = CompleteFrozen
	}
	return rec, err
}

// openCapture opens the folder of a capture. It follows no link.
func openCapture(folder string) (*os.Root, error) {
	parent, err := os.OpenRoot(filepath.Dir(folder))
	if err != nil {
		return nil, err
	}
	defer parent.Close()
	root, err := output.OpenFolder(parent, filepath.Base(folder))
	if err != nil {
		return nil, output.WithPath(err, folder)
	}
	return root, nil
}

// RemoveCapture deletes a capture: a file with its findings, or a folder of segments. It deletes no other
// files. A capture that does not exist is no error.
func RemoveCapture(captures *os.Root, c Capture) error {
	if c.State == CaptureSuffix {
		return errors.Join(
			removeIfExists(captures, c.ID+CaptureSuffix), removeIfExists(captures, c.ID+FindingsSuffix),
		)
	}
	name := c.ID + c.State
	root, err := output.OpenFolder(captures, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, file := range []string{triggerFile, triggerFile + unfinishedFileSuffix} {
		err = errors.Join(err, removeIfExists(root, file))
	}
	if err := errors.Join(err, root.Close()); err != nil {
		return err
	}
	return removeSegments(captures, name)
}

// FindingsSuffix is the suffix of the file with the findings about a sealed capture: one JSON object a line.
const FindingsSuffix = ".findings.jsonl"

func removeIfExists(root *os.Root, name string) error {
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
