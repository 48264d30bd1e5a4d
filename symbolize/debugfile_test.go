package symbolize

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/symbolize/elftest"
)

// foundFiles returns the files that a finder yields.
func foundFiles(t testing.TB, f *Finder, module, buildID string) []string {
	t.Helper()
	var paths []string
	for path, err := range f.Files(module, buildID) {
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	return paths
}

// splitProgram builds a stripped program, its debug file and an unrelated file.
func splitProgram(t testing.TB) (stripped, debug, other, buildID string) {
	t.Helper()
	stripped = compile(t, "inlined.c", "program", "-O2", "-Wl,--build-id=sha1", "-g")
	other = compile(t, "inlined.c", "program", "-O2", "-Wl,--build-id=sha1", "-g", "-O0")
	debug = filepath.Join(filepath.Dir(stripped), "program.debug")
	elftest.Run(t, "objcopy", "--only-keep-debug", stripped, debug)
	elftest.Run(t, "strip", "--strip-all", stripped)
	elftest.Run(t, "objcopy", "--add-gnu-debuglink="+debug, stripped)
	return stripped, debug, other, readFileBuildID(stripped)
}

// copyFile copies a file.
func copyFile(t testing.TB, from string, to ...string) string {
	t.Helper()
	path := filepath.Join(to...)
	raw, err := os.ReadFile(from)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	if err == nil {
		err = os.WriteFile(path, raw, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFinderFindsDebugFiles(t *testing.T) {
	testclass.Unit(t)
	stripped, debug, other, id := splitProgram(t)
	byID := filepath.Join(".build-id", id[:2], id[2:]+".debug")
	for name, test := range map[string]struct {
		from string
		at   string // path below Finder.root; with a leading + below the additional folder
		want bool
	}{
		"the module itself":              {stripped, "app/program", true},
		"another module at its path":     {other, "app/program", false},
		"by build id":                    {debug, "usr/lib/debug/" + byID, true},
		"by build id, another file":      {other, "usr/lib/debug/" + byID, false},
		"next to it":                     {debug, "app/program.debug", true},
		"next to it, another file":       {other, "app/program.debug", false},
		"in .debug":                      {debug, "app/.debug/program.debug", true},
		"under /usr/lib/debug":           {debug, "usr/lib/debug/app/program.debug", true},
		"in an extra folder by build id": {debug, "+" + byID, true},
		"in an extra folder by name":     {debug, "+program", true},
		"in an extra folder, .debug":     {debug, "+program.debug", true},
		"in an extra folder, another":    {other, "+program", false},
		"in an extra folder, deeper":     {debug, "+deeper/program", false},
	} {
		t.Run(name, func(t *testing.T) {
			f := &Finder{root: t.TempDir(), Dirs: []string{t.TempDir()}}
			var want []string
			if strings.HasPrefix(test.at, "app/") || strings.HasPrefix(test.at, "usr/lib/debug/app") {
				want = append(want, copyFile(t, stripped, f.root, "app/program"))
			}
			path := filepath.Join(f.root, test.at)
			if below, ok := strings.CutPrefix(test.at, "+"); ok {
				path = filepath.Join(f.Dirs[0], below)
			}
			if path = copyFile(t, test.from, path); test.want && !slices.Contains(want, path) {
				want = append(want, path)
			} else if !test.want && slices.Contains(want, path) {
				want = nil
			}
			if got := foundFiles(t, f, "/app/program", id); !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

func TestFinderIgnoresHostileNames(t *testing.T) {
	testclass.Unit(t)
	for _, id := range []string{"", "a", "ab", "../../etc/passwd", "ab/../../x", "zz00", strings.Repeat("ab", 65)} {
		if got := foundFiles(t, &Finder{Dirs: []string{t.TempDir()}}, "/bin/sh", id); got != nil {
			t.Errorf("Files of build id %q = %q", id, got)
		}
	}
	for _, module := range []string{"", "[vdso]", "..", "/dev/stdin", "/proc/self/mem", "../../bin/sh", `C:\app.exe`} {
		if got := foundFiles(t, &Finder{Dirs: []string{t.TempDir()}}, module, "abcdef"); got != nil {
			t.Errorf("Files of %q = %q", module, got)
		}
	}
}

// debuginfodServer serves one file for every build id, and counts requests.
func debuginfodServer(t *testing.T, file string, requests *[]string) *httptest.Server {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*requests = append(*requests, r.URL.Path)
		http.ServeFile(w, r, file)
	}))
	t.Cleanup(server.Close)
	return server
}

func newDebuginfod(t *testing.T, urls ...string) *Debuginfod {
	t.Helper()
	t.Setenv("DEBUGINFOD_CACHE_PATH", t.TempDir())
	d, err := NewDebuginfod(urls)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestDebuginfodCachesFiles(t *testing.T) {
	testclass.Unit(t)
	_, debug, _, id := splitProgram(t)
	var requests []string
	empty := httptest.NewServer(http.NotFoundHandler())
	defer empty.Close()
	d := newDebuginfod(t, empty.URL, debuginfodServer(t, debug, &requests).URL+"/")
	want := filepath.Join(d.cache, id, "debuginfo")
	for range 2 { // the second time from the cache
		if got := foundFiles(t, &Finder{Debuginfod: d}, "/nowhere/program", id); !slices.Equal(got, []string{want}) {
			t.Errorf("Files = %q, want %q", got, want)
		}
	}
	if !slices.Equal(requests, []string{"/buildid/" + id + "/debuginfo"}) {
		t.Errorf("requests: %q", requests)
	}
	if _, err := OpenSource(want); err != nil {
		t.Error(err)
	}
}

func TestDebuginfodRefusesWrongFiles(t *testing.T) {
	testclass.Unit(t)
	_, debug, other, id := splitProgram(t)
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	send := func(path string, cut int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			raw, _ := os.ReadFile(path)
			w.Header().Set("Content-Length", fmt.Sprint(len(raw)))
			_, _ = w.Write(raw[:len(raw)-cut])
		}
	}
	for name, test := range map[string]struct {
		handler http.HandlerFunc
		limit   int64
		want    string
	}{
		"another file":   {send(other, 0), maxDownloadBytes, "build id"},
		"cut off":        {send(debug, 100), maxDownloadBytes, "unexpected EOF"},
		"too long":       {send(debug, 0), 1000, "exceeds the limit of 1000"},
		"endless":        {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 1<<20)) }, 1000, "exceeds the limit of 1000"},
		"server error":   {status(500), maxDownloadBytes, "500 Internal Server Error"},
		"not there":      {status(404), maxDownloadBytes, "does not exist"},
		"nothing at all": {status(200), maxDownloadBytes, "build id"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(test.handler)
			defer server.Close()
			d := newDebuginfod(t, server.URL)
			d.limit = test.limit
			path, err := d.Fetch(id)
			if err == nil || path != "" || !strings.Contains(err.Error(), test.want) ||
				strings.Contains(err.Error(), "\n") {
				t.Errorf("Fetch = %q, %v; want an error with %q", path, err, test.want)
			}
			if errors.Is(err, fs.ErrNotExist) != (name == "not there") {
				t.Errorf("fs.ErrNotExist: %v", err)
			}
			if left, _ := filepath.Glob(filepath.Join(d.cache, "*", "*")); len(left) > 0 {
				t.Errorf("files remain: %q", left)
			}
		})
	}
}

func TestDebuginfodSkipsFailedServers(t *testing.T) {
	testclass.Unit(t)
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close() // no server listens at this URL
	d := newDebuginfod(t, server.URL)
	if _, err := d.Fetch("abcdef"); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the first time: %v", err)
	}
	if _, err := d.Fetch("abcdef01"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the second time: %v", err)
	}
}

func TestDebuginfodRefusesOtherURLs(t *testing.T) {
	testclass.Unit(t)
	for _, urls := range [][]string{
		nil,
		{"file:///etc"},
		{"localhost"},
		{"http://"},
		{"https://ok.example", "ftp://x.example"},
	} {
		if _, err := NewDebuginfod(urls); err == nil {
			t.Errorf("NewDebuginfod(%q) takes them", urls)
		}
	}
}

func TestDebuginfodCacheFolder(t *testing.T) {
	testclass.Unit(t)
	t.Setenv("HOME", "/home/me")
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("DEBUGINFOD_CACHE_PATH", "")
	for _, step := range []struct{ name, value, want string }{
		{"HOME", "/home/me", "/home/me/.cache/debuginfod_client"},
		{"XDG_CACHE_HOME", "/xdg", "/xdg/debuginfod_client"},
		{"DEBUGINFOD_CACHE_PATH", "/mine", "/mine"},
	} {
		t.Setenv(step.name, step.value)
		if got, err := debuginfodCacheFolder(); got != step.want || err != nil {
			t.Errorf("with %s: %q, %v; want %q", step.name, got, err, step.want)
		}
	}
}
