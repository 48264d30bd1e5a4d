package symbolize

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"iter"
	"path/filepath"
	"strings"

	"github.com/gpurec/gpurec/symbolize/elffile"
)

// Finder finds files with symbols or debug information of a module: the module itself and separate
// debug files of distributions and build systems. The zero value searches this machine only. A
// Finder is safe for concurrent use.
type Finder struct {
	// Dirs are additional folders to search. In each, Finder tries .build-id/xx/yyy.debug and the
	// module's file name, with and without ".debug" appended.
	Dirs []string
	// Debuginfod downloads files that are not on this machine. nil disables downloads.
	Debuginfod *Debuginfod

	root string // prefix of all paths, for tests
}

// Files yields the paths of files for the module with a path and a GNU build id (hexadecimal, see
// Object.BuildID). The module itself comes first if it still exists. All files have this build id.
// Without a build id, Files yields nothing. It searches one file at a time: a loop that ends early
// causes no download. If a download fails, the last pair has an empty path and the error.
func (f *Finder) Files(module, buildID string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		raw, err := hex.DecodeString(buildID)
		if err != nil || len(raw) < 2 || len(raw) > 64 {
			return // a recording of another user must not lead to other paths
		}
		buildID = strings.ToLower(buildID)
		seen := make(map[string]bool)
		for path := range f.candidatePaths(module, buildID) {
			if path = filepath.Clean(path); seen[path] {
				continue
			}
			seen[path] = true
			if readFileBuildID(path) == buildID && !yield(path, nil) {
				return
			}
		}
		if f.Debuginfod == nil {
			return
		}
		path, err := f.Debuginfod.Fetch(buildID)
		switch {
		case err == nil:
			yield(path, nil)
		case !errors.Is(err, fs.ErrNotExist):
			yield("", err)
		}
	}
}

// candidatePaths yields the paths on this machine where files of a module may be.
func (f *Finder) candidatePaths(module, buildID string) iter.Seq[string] {
	const system = "/usr/lib/debug"
	byID := filepath.Join(".build-id", buildID[:2], buildID[2:]+".debug")
	base := ModuleName(module)
	return func(yield func(string) bool) {
		at := func(parts ...string) bool { return yield(filepath.Join(append([]string{f.root}, parts...)...)) }
		local := filepath.IsAbs(module)
		if local && !at(module) {
			return
		}
		for _, dir := range f.Dirs {
			for _, name := range []string{byID, base, base + ".debug"} {
				if !yield(filepath.Join(dir, name)) {
					return
				}
			}
		}
		if !at(system, byID) || !local {
			return
		}
		dir := filepath.Dir(module)
		if link := readDebugLink(filepath.Join(f.root, module)); link != "" {
			_ = at(dir, link) && at(dir, ".debug", link) && at(system, dir, link)
		}
	}
}

// ReadBuildID returns the GNU build id of an ELF file in hexadecimal digits, or "" if it has none.
// It does not read symbols.
func ReadBuildID(r io.ReaderAt, size int64) (string, error) {
	f, err := elffile.New(r, size)
	if err != nil {
		return "", err
	}
	return f.BuildID(), nil
}

// readFileBuildID returns the build id of the file at path. It returns "" for other files and files
// without a build id.
func readFileBuildID(path string) string {
	file, size, err := openRegularFile(path)
	if err != nil {
		return ""
	}
	defer file.Close()
	f, err := elffile.New(file, size)
	if err != nil {
		return ""
	}
	return f.BuildID()
}

// readDebugLink returns the file name in .gnu_debuglink, the separate debug file of a stripped
// file. It returns "" if there is none.
func readDebugLink(path string) string {
	file, size, err := openRegularFile(path)
	if err != nil {
		return ""
	}
	defer file.Close()
	f, err := elffile.New(file, size)
	if err != nil {
		return ""
	}
	section := f.SectionByName(".gnu_debuglink")
	if section == nil {
		return ""
	}
	raw, err := f.Read(section.Off, section.Size, 4<<10)
	if err != nil {
		return ""
	}
	name, _, _ := bytes.Cut(raw, []byte{0})
	if link := string(name); link != ".." && filepath.Base(link) == link {
		return link
	}
	return "" // a path must not lead to other folders
}
