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

// Finder finds the files that have symbols or debug information of a module: the module itself and
// separate debug files, as distributions and build systems put them down. The zero value looks on
// this machine only. It may be used by several goroutines at once.
type Finder struct {
	// Dirs are further folders: each is searched for .build-id/xx/yyy.debug and for files with the
	// module's file name, with and without ".debug" behind it.
	Dirs []string
	// Debuginfod is asked last, for what is not found on this machine; nil is nobody.
	Debuginfod *Debuginfod

	root string // in front of all paths, for tests
}

// Files yields the paths of files that belong to the module with that path and GNU build id
// (hexadecimal digits, see Object.BuildID), the module itself first, if it is still there. All have
// been checked to have this very build id, so without one there are none. Files are looked for one
// by one: who stops early asks no server. At the end comes an error, without a path, if a server
// failed.
func (f *Finder) Files(module, buildID string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		raw, err := hex.DecodeString(buildID)
		if err != nil || len(raw) < 2 || len(raw) > 64 {
			return // it may come from a foreign recording: it must not lead elsewhere
		}
		buildID = strings.ToLower(buildID)
		seen := make(map[string]bool)
		for path := range f.places(module, buildID) {
			if path = filepath.Clean(path); seen[path] {
				continue
			}
			seen[path] = true
			if fileBuildID(path) == buildID && !yield(path, nil) {
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

// places yields all paths on this machine where files of a module may lie.
func (f *Finder) places(module, buildID string) iter.Seq[string] {
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
		if link := debugLink(filepath.Join(f.root, module)); link != "" {
			_ = at(dir, link) && at(dir, ".debug", link) && at(system, dir, link)
		}
	}
}

// ReadBuildID returns the GNU build id of an ELF file in hexadecimal digits, "" if it has none. It
// does not read the file's symbols.
func ReadBuildID(r io.ReaderAt, size int64) (string, error) {
	f, err := elffile.New(r, size)
	if err != nil {
		return "", err
	}
	return f.BuildID(), nil
}

// fileBuildID returns the build id of the file at path, "" if that is no ELF file or has none.
func fileBuildID(path string) string {
	file, size, err := openRegular(path)
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

// debugLink returns the file name that a stripped file gives for its separate debug file, "" where
// there is none.
func debugLink(path string) string {
	file, size, err := openRegular(path)
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
	return "" // it must not lead elsewhere
}
