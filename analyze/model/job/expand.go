package job

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/gpurec/gpurec/format"
)

// Expand returns the paths of the recordings that arguments name: files, folders of unfinished recordings, folders of
// recordings, and patterns that the shell did not expand. Recordings of a folder or pattern are in the order of their
// names. It returns *NoRecordingError for a folder or pattern without a recording. It does not open files.
func Expand(arguments []string) ([]string, error) {
	var paths []string
	for _, argument := range arguments {
		list, err := expand(argument)
		if err != nil {
			return nil, err
		}
		paths = append(paths, list...)
	}
	return paths, nil
}

// NoRecordingError is the error for a folder or a pattern without recordings.
type NoRecordingError struct {
	Path     string
	IsFolder bool
}

// Error names the folder or pattern.
func (e *NoRecordingError) Error() string {
	if e.IsFolder {
		return fmt.Sprintf("%s has no recording: no file in it is named *.parquet", e.Path)
	}
	return fmt.Sprintf("%s matches no file", e.Path)
}

// expand returns the recordings of one argument.
func expand(argument string) ([]string, error) {
	path := filepath.Clean(argument)
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir() && !isUnfinished(path):
		return recordingsIn(path)
	case err == nil || !errors.Is(err, os.ErrNotExist) || !strings.ContainsAny(path, "*?["):
		return []string{path}, nil // format.Open explains errors
	}
	matches, err := filepath.Glob(path)
	if err != nil {
		return nil, fmt.Errorf("read pattern %s: %w", path, err)
	}
	if len(matches) == 0 {
		return nil, &NoRecordingError{Path: path}
	}
	return matches, nil
}

// isUnfinished reports whether a folder has the segments of one recording.
func isUnfinished(folder string) bool {
	if strings.HasSuffix(folder, format.SegmentSuffix) {
		return true
	}
	rec, err := format.Open(folder)
	if err == nil {
		rec.Close()
	}
	return err == nil || !errors.Is(err, format.ErrNoSegments)
}

// recordingsIn returns the recordings in a folder: files *.parquet, and folders of unfinished recordings whose file
// does not exist.
func recordingsIn(folder string) ([]string, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	names := make(map[string]bool)
	for _, e := range entries {
		names[e.Name()] = true
	}
	var paths []string
	for _, e := range entries {
		file := strings.TrimSuffix(e.Name(), format.SegmentSuffix)
		if strings.HasSuffix(file, ".parquet") && (file == e.Name() || !names[file]) {
			paths = append(paths, filepath.Join(folder, e.Name()))
		}
	}
	if len(paths) == 0 {
		return nil, &NoRecordingError{Path: folder, IsFolder: true}
	}
	return paths, nil
}
