package symbolize

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

const (
	// maxDownloadBytes bounds the size of a debug file in bytes. The debug file of a browser has 2
	// GB.
	maxDownloadBytes = 4 << 30
	// maxDownloadTime bounds the duration of a download, maxResponseHeaderWait the wait for the
	// response headers.
	maxDownloadTime       = 10 * time.Minute
	maxResponseHeaderWait = 30 * time.Second
)

// Debuginfod downloads debug files by build id from debuginfod servers
// (https://sourceware.org/elfutils/Debuginfod.html). It shares the cache folder of elfutils and
// GDB. It is safe for concurrent use.
type Debuginfod struct {
	urls   []string
	cache  string
	limit  int64
	client http.Client

	mu   sync.Mutex
	down map[string]bool // failed servers: further requests could take minutes
}

// NewDebuginfod returns a client that queries the servers in order. It returns an error for a URL
// that is not http or https, and if there is no cache folder: $DEBUGINFOD_CACHE_PATH,
// $XDG_CACHE_HOME/debuginfod_client or ~/.cache/debuginfod_client. It sends no requests before
// Fetch.
func NewDebuginfod(urls []string) (*Debuginfod, error) {
	for _, text := range urls {
		if u, err := url.Parse(text); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return nil, fmt.Errorf("%q is not an http or https URL", text)
		}
	}
	if len(urls) == 0 {
		return nil, errors.New("no debuginfod server is given")
	}
	cache, err := debuginfodCacheFolder()
	if err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.ResponseHeaderTimeout = maxResponseHeaderWait
	return &Debuginfod{
		urls: urls, cache: cache, limit: maxDownloadBytes, down: make(map[string]bool),
		client: http.Client{Timeout: maxDownloadTime, Transport: transport},
	}, nil
}

// debuginfodCacheFolder returns the cache folder of the elfutils client: see
// debuginfod_find_debuginfo(3).
func debuginfodCacheFolder() (string, error) {
	if dir := os.Getenv("DEBUGINFOD_CACHE_PATH"); dir != "" {
		return dir, nil
	}
	if dir := os.Getenv("XDG_CACHE_HOME"); dir != "" {
		return filepath.Join(dir, "debuginfod_client"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("find a folder for debug files: %w", err)
	}
	return filepath.Join(home, ".cache", "debuginfod_client"), nil
}

// Fetch returns the path of the debug file with a build id (hexadecimal), from the cache or from
// the first server that has it. The error wraps fs.ErrNotExist if all servers responded and none
// has the file. A failed server gets no further requests.
func (d *Debuginfod) Fetch(buildID string) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	path := filepath.Join(d.cache, buildID, "debuginfo")
	if readFileBuildID(path) == buildID {
		return path, nil
	}
	var failed error
	for _, server := range d.urls {
		if d.down[server] {
			continue
		}
		err := d.downloadDebugFile(server, buildID, path)
		switch {
		case err == nil:
			return path, nil
		case errors.Is(err, fs.ErrNotExist):
			continue
		}
		d.down[server] = true
		failed = errors.Join(failed, err)
	}
	if failed == nil {
		failed = fmt.Errorf("debug file of build id %s: %w", buildID, fs.ErrNotExist)
	}
	return "", failed
}

// downloadDebugFile stores a file from one server at path, after it has checked the size and the
// build id.
func (d *Debuginfod) downloadDebugFile(server, buildID, path string) (err error) {
	answer, err := d.client.Get(strings.TrimRight(server, "/") + "/buildid/" + buildID + "/debuginfo")
	if err != nil {
		return fmt.Errorf("query debuginfod: %w", err)
	}
	defer answer.Body.Close()
	switch {
	case answer.StatusCode == http.StatusNotFound:
		return fs.ErrNotExist
	case answer.StatusCode != http.StatusOK:
		return fmt.Errorf("query debuginfod server %s: %s", server, answer.Status)
	case answer.ContentLength > d.limit:
		return fmt.Errorf(
			"query debuginfod server %s: file of %d bytes exceeds the limit of %d",
			server,
			answer.ContentLength,
			d.limit,
		)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("store debug file: %w", err)
	}
	file, err := os.CreateTemp(filepath.Dir(path), "debuginfo.*.part")
	if err != nil {
		return fmt.Errorf("store debug file: %w", err)
	}
	defer func() {
		if err != nil {
			os.Remove(file.Name())
		}
	}()
	n, err := io.Copy(file, io.LimitReader(answer.Body, d.limit+1))
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("download debug file from %s: %w", server, err)
	}
	if n > d.limit {
		return fmt.Errorf("download debug file from %s: exceeds the limit of %d bytes", server, d.limit)
	}
	if got := readFileBuildID(file.Name()); got != buildID {
		return fmt.Errorf(
			"download debug file from %s: build id is %q, not %q: %w",
			server,
			got,
			buildID,
			ErrBuildID,
		)
	}
	if err := os.Rename(file.Name(), path); err != nil {
		return fmt.Errorf("store debug file: %w", err)
	}
	return nil
}
