//go:build linux

package kernelargs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/record/process"
	"github.com/gpurec/gpurec/symbolize"
	"github.com/gpurec/gpurec/symbolize/elffile"
)

// maxPTXBytes is the largest accepted PTX text.
const maxPTXBytes = 16 << 20

// processMemory is the memory of a process from an address on.
type processMemory struct {
	pid  int
	from uint64
}

// ReadAt implements io.ReaderAt by process_vm_readv, which stops nothing.
func (m processMemory) ReadAt(into []byte, offset int64) (n int, err error) {
	for n < len(into) {
		local := []unix.Iovec{{Base: &into[n]}}
		local[0].SetLen(len(into) - n)
		remote := []unix.RemoteIovec{{Base: uintptr(m.from) + uintptr(offset) + uintptr(n), Len: len(into) - n}}
		got, err := unix.ProcessVMReadv(m.pid, local, remote, 0)
		if err != nil {
			return n, err
		}
		if got <= 0 {
			return n, io.ErrUnexpectedEOF
		}
		n += got
	}
	return n, nil
}

// readImage returns the layouts of the image at an address of a process.
func readImage(pid int, address uint64) (layouts, error) {
	m := processMemory{pid, address}
	var head [16]byte
	if _, err := m.ReadAt(head[:], 0); err != nil {
		return nil, err
	}
	if binary.LittleEndian.Uint32(head[:]) == magicWrapper {
		m.from = binary.LittleEndian.Uint64(head[8:])
		if _, err := m.ReadAt(head[:], 0); err != nil {
			return nil, err
		}
	}
	switch binary.LittleEndian.Uint32(head[:]) {
	case magicELF:
		return readCubin(m, maxImageBytes)
	case magicFatbin:
		found, _, err := readFatbin(m)
		return found, err
	}
	text, err := readText(m, maxPTXBytes)
	return parsePTX(text), err
}

// readText returns the text up to the first byte 0.
func readText(m processMemory, limit int64) (string, error) {
	var text strings.Builder
	buffer := make([]byte, 4096)
	for at := int64(0); at < limit; {
		// Up to the end of a page: the next one may not exist.
		n := int64(len(buffer)) - int64((m.from+uint64(at))%uint64(len(buffer)))
		if _, err := m.ReadAt(buffer[:n], at); err != nil {
			return "", err
		}
		if end := bytes.IndexByte(buffer[:n], 0); end >= 0 {
			text.Write(buffer[:end])
			return text.String(), nil
		}
		text.Write(buffer[:n])
		at += n
	}
	return "", errors.New("text has no end")
}

// readImageFile returns the layouts of the image file whose path is at an address of a process.
func readImageFile(pid int, address uint64) (layouts, error) {
	path, err := readText(processMemory{pid, address}, unix.PathMax)
	if err != nil {
		return nil, err
	}
	p, err := process.Open(pid)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	if !strings.HasPrefix(path, "/") {
		dir, err := os.Readlink(p.Path("cwd"))
		if err != nil {
			return nil, err
		}
		path = dir + "/" + path
	}
	file, err := p.OpenRegular(path, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var head [4]byte
	if _, err := file.ReadAt(head[:], 0); err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	switch binary.LittleEndian.Uint32(head[:]) {
	case magicELF:
		return readCubin(file, info.Size())
	case magicFatbin:
		found, _, err := readFatbin(file)
		return found, err
	}
	text, err := process.ReadAtMost(file, maxPTXBytes)
	return parsePTX(text), err
}

// fatbinSections are the sections of ELF files in which nvcc puts fatbins.
var fatbinSections = []string{".nv_fatbin", "__nv_relfatbin"}

// mappedFile identifies a mapped file, as /proc/PID/maps does.
type mappedFile struct {
	dev   string
	inode uint64
}

// readMappedFiles returns the layouts of the kernels in the files that a process has mapped. known has the
// files that were read before, and gets those that are read now. It leaves out files with more than
// maxImageBytes of images: reading those of PyTorch would take minutes.
func readMappedFiles(pid int, known map[mappedFile]bool) (found layouts, tooLarge bool, err error) {
	p, err := process.Open(pid)
	if err != nil {
		return nil, false, err
	}
	defer p.Close()
	maps, err := p.Maps()
	if err != nil {
		return nil, false, err
	}
	found = make(layouts)
	for _, m := range maps {
		id := mappedFile{m.Dev, m.Inode}
		if !m.Executable() || m.Inode == 0 || known[id] {
			continue
		}
		known[id] = true
		kernels, large := readMappedFile(p, m)
		found.addAll(kernels)
		tooLarge = tooLarge || large
	}
	return found, tooLarge, nil
}

// readMappedFile returns the layouts of the kernels in a mapped file.
func readMappedFile(p *process.Process, m symbolize.Mapping) (found layouts, tooLarge bool) {
	found = make(layouts)
	file, err := p.OpenMappedFile(m)
	if err != nil {
		return found, false
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return found, false
	}
	f, err := elffile.New(file, info.Size())
	if err != nil {
		return found, false
	}
	for _, name := range fatbinSections {
		s := f.SectionByName(name)
		if s == nil || !f.Has(s.Off, s.Size) {
			continue
		}
		if s.Size > maxImageBytes {
			tooLarge = true
			continue
		}
		readFatbins(io.NewSectionReader(file, int64(s.Off), int64(s.Size)), found)
	}
	return found, tooLarge
}

// readFatbins adds the kernels of all fatbins of a section. They are aligned to 8 bytes.
func readFatbins(section *io.SectionReader, found layouts) {
	for at := int64(0); at+fatbinHeaderBytes <= section.Size(); {
		var head [4]byte
		if _, err := section.ReadAt(head[:], at); err != nil {
			return
		}
		if binary.LittleEndian.Uint32(head[:]) != magicFatbin {
			at += 8
			continue
		}
		kernels, size, err := readFatbin(io.NewSectionReader(section, at, section.Size()-at))
		found.addAll(kernels)
		if err != nil || size <= 0 {
			at += 8
			continue
		}
		at += (size + 7) &^ 7
	}
}
