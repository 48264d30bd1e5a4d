package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Limits of a list of recordings.
const (
	maxEntries  = 10_000 // files and folders that are looked at
	maxDepth    = 6      // folders below the server's
	maxListed   = 100    // recordings whose metadata are read
	maxNameSize = 200    // characters of a name
)

// listing is the answer of the tool list_recordings.
type listing struct {
	Recordings []*listedRecording `json:"recordings"        jsonschema:"the newest first"`
	LeftOut    int                `json:"left_out"          jsonschema:"number of further recordings: give a folder to see them"`
	Skipped    int                `json:"skipped,omitempty" jsonschema:"recordings with names that cannot be shown"`
	Incomplete bool               `json:"incomplete"        jsonschema:"true if the folder has too many files to look at all"`
}

// listedRecording describes a recording.
type listedRecording struct {
	Name       string `json:"name"`
	SizeBytes  int64  `json:"size_bytes"`
	Modified   string `json:"modified"`
	Started    string `json:"started,omitempty"`
	Duration   string `json:"duration,omitempty"`
	Host       string `json:"host,omitempty"`
	Unfinished bool   `json:"unfinished,omitempty" jsonschema:"true if it is being recorded, or was interrupted"`
	Error      string `json:"error,omitempty"`

	modified time.Time
}

// list is the tool list_recordings.
func (s *Server) list(
	ctx context.Context,
	_ *mcp.CallToolRequest,
	arguments listArguments,
) (*mcp.CallToolResult, *listing, error) {
	var found *listing
	_, err := s.work.do(ctx, func() (string, error) {
		var err error
		found, err = s.findRecordings(ctx, cmp.Or(arguments.Folder, "."))
		return "", err
	})
	if err != nil {
		return nil, nil, describeError(err)
	}
	return nil, found, nil
}

// findRecordings returns the recordings in a folder below root and in the folders below it. It follows no link to a
// folder.
func (s *Server) findRecordings(ctx context.Context, folder string) (*listing, error) {
	folder = filepath.ToSlash(filepath.Clean(folder))
	if !filepath.IsLocal(filepath.FromSlash(folder)) {
		return nil, fmt.Errorf("%s %w", folder, format.ErrOutside)
	}
	found := &listing{Recordings: []*listedRecording{}}
	seen := 0
	err := fs.WalkDir(s.root.FS(), folder, func(name string, d fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && name == folder:
			return err
		case err != nil:
			return nil // a folder without permission
		}
		if seen++; seen > maxEntries {
			found.Incomplete = true
			return fs.SkipAll
		}
		return s.addEntry(found, name, d)
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(found.Recordings, func(a, b *listedRecording) int {
		return cmp.Or(b.modified.Compare(a.modified), strings.Compare(a.Name, b.Name))
	})
	if n := len(found.Recordings); n > maxListed {
		found.Recordings, found.LeftOut = found.Recordings[:maxListed], n-maxListed
	}
	for i := range found.Recordings {
		s.describe(ctx, found.Recordings[i])
	}
	return found, found.fit(s.maxChars)
}

// addEntry adds an entry of a folder to the listing if it is a recording.
func (s *Server) addEntry(found *listing, name string, d fs.DirEntry) error {
	isFolder := d.IsDir()
	switch {
	case isFolder && name != "." && strings.HasPrefix(path.Base(name), "."):
		return fs.SkipDir
	case isFolder && !strings.HasSuffix(name, ".parquet"+format.SegmentSuffix):
		if strings.Count(name, "/") >= maxDepth {
			found.Incomplete = true
			return fs.SkipDir
		}
		return nil
	case !isFolder && !strings.HasSuffix(name, ".parquet"):
		return nil
	}
	after := error(nil)
	if isFolder {
		after = fs.SkipDir
		if _, err := s.root.Stat(strings.TrimSuffix(name, format.SegmentSuffix)); err == nil {
			return after // the finished file is listed
		}
	}
	info, err := s.root.Stat(name) // follows links in root
	if err != nil || !isFolder && !info.Mode().IsRegular() {
		return after
	}
	if quote(name, maxNameSize) != name {
		found.Skipped++
		return after
	}
	found.Recordings = append(found.Recordings, &listedRecording{
		Name: name, SizeBytes: info.Size(), Unfinished: isFolder, modified: info.ModTime(),
		Modified: info.ModTime().UTC().Format(time.RFC3339),
	})
	return after
}

// describe reads the metadata of a recording.
func (s *Server) describe(ctx context.Context, r *listedRecording) {
	rec, err := format.OpenIn(ctx, s.root, r.Name)
	if err != nil {
		r.Error = quote(explainOpen(r.Name, err).Error(), maxNameSize)
		return
	}
	defer rec.Close()
	m := &rec.Meta
	r.SizeBytes = rec.Size()
	r.Started = time.Unix(0, m.StartNs).UTC().Format(time.RFC3339)
	r.Duration = units.FormatDuration(max(0, m.EndNs-m.StartNs))
	r.Host = quote(m.Host, maxNameSize)
	r.Unfinished = r.Unfinished || !m.HasEnd()
}

// fit leaves out the oldest recordings until the listing has at most maxChars characters.
func (l *listing) fit(maxChars int) error {
	for {
		text, err := json.Marshal(l)
		if err != nil {
			return err
		}
		n := len(l.Recordings)
		if utf8.RuneCount(text) <= maxChars || n == 0 {
			return nil
		}
		keep := n - 1
		l.LeftOut += n - keep
		l.Recordings = l.Recordings[:keep]
	}
}

// explainOpen returns an error about opening a recording, with its name.
func explainOpen(name string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("recording %s does not exist: list_recordings has the names", name)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("recording %s: permission denied", name)
	}
	for _, known := range []error{
		format.ErrOutside, format.ErrNotRegular, format.ErrEmpty, format.ErrNotParquet, format.ErrTruncated,
		format.ErrNotRecording, format.ErrNoSegments,
	} {
		if errors.Is(err, known) {
			return fmt.Errorf("recording %s %w", name, known)
		}
	}
	return fmt.Errorf("recording %s cannot be read: %w", name, err)
}
