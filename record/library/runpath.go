//go:build linux

package library

import (
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"

	"github.com/gpurec/gpurec/record/process"
	"github.com/gpurec/gpurec/symbolize/elffile"
)

// maxDynamicBytes limits the dynamic section that is read. That of a program has some 500 bytes.
const maxDynamicBytes = 64 << 10

// runPaths returns the folders in which the program of a process looks for its libraries: DT_RPATH
// and DT_RUNPATH.
func runPaths(p *process.Process) (dirs []string) {
	file, err := os.Open(p.Path("exe"))
	if err != nil {
		return nil
	}
	defer file.Close()
	program, err := os.Readlink(p.Path("exe"))
	if err != nil {
		return nil
	}
	info, err := file.Stat()
	if err != nil {
		return nil
	}
	f, err := elffile.New(file, info.Size())
	if err != nil {
		return nil
	}
	section := f.SectionByType(elf.SHT_DYNAMIC)
	if section == nil || uint64(section.Link) >= uint64(len(f.Sections)) {
		return nil
	}
	entries, err := f.Read(section.Off, section.Size, maxDynamicBytes)
	if err != nil {
		return nil
	}
	texts := f.Sections[section.Link]
	for ; len(entries) >= 16; entries = entries[16:] {
		tag, at := elf.DynTag(binary.LittleEndian.Uint64(entries)), binary.LittleEndian.Uint64(entries[8:])
		if (tag != elf.DT_RPATH && tag != elf.DT_RUNPATH) || at >= texts.Size {
			continue
		}
		for _, dir := range filepath.SplitList(f.Text(texts.Off+at, texts.Off+texts.Size)) {
			for _, origin := range []string{"$ORIGIN", "${ORIGIN}"} {
				dir = strings.ReplaceAll(dir, origin, filepath.Dir(program))
			}
			dirs = append(dirs, filepath.Clean(dir))
		}
	}
	return dirs
}
