//go:build linux

package torchallocator

import (
	"encoding/binary"
	"errors"
	"slices"

	"golang.org/x/sys/unix"
)

const pageBytes = 4096

// Memory is the memory of a process.
type Memory interface {
	// ReadPages fills pages from page-aligned addresses of the process. A page that it cannot read is nil afterwards.
	// It returns ErrDenied or ErrEnded if no page can be read.
	ReadPages(addresses []uint64, pages []*Page) error
}

// Page is one page of memory.
type Page [pageBytes]byte

// ProcessMemory reads the memory of a process by process_vm_readv, which stops nothing. It is the process's pid.
type ProcessMemory int

// maxPagesPerRead is half of the number of parts that the kernel accepts.
const maxPagesPerRead = 512

// ReadPages implements Memory.
func (m ProcessMemory) ReadPages(addresses []uint64, pages []*Page) error {
	var local [maxPagesPerRead]unix.Iovec
	var remote [maxPagesPerRead]unix.RemoteIovec
	for len(addresses) > 0 {
		batch := min(len(addresses), maxPagesPerRead)
		for i := range batch {
			local[i] = unix.Iovec{Base: &pages[i][0]}
			local[i].SetLen(pageBytes)
			remote[i] = unix.RemoteIovec{Base: uintptr(addresses[i]), Len: pageBytes}
		}
		n, err := unix.ProcessVMReadv(int(m), local[:batch], remote[:batch], 0)
		switch {
		case errors.Is(err, unix.EPERM):
			return ErrDenied
		case errors.Is(err, unix.ESRCH):
			return ErrEnded
		}
		if done := max(n, 0) / pageBytes; done < batch {
			pages[done] = nil // the kernel stops at the first page that it cannot read
			batch = done + 1
		}
		addresses, pages = addresses[batch:], pages[batch:]
	}
	return nil
}

// image has those pages of a process that one reading needs. Each page is read once.
type image struct {
	memory Memory
	pages  map[uint64]*Page // by address; nil: unreadable
	spare  []*Page
}

func newImage(m Memory) *image { return &image{memory: m, pages: make(map[uint64]*Page)} }

// maxImagePages bounds an image, 512 MiB.
const maxImagePages = 1 << 17

// refresh reads all pages again that the image has. So one call reads nearly all that the next reading needs.
func (img *image) refresh() error {
	var addresses []uint64
	for at, page := range img.pages {
		addresses = append(addresses, at)
		if page != nil {
			img.spare = append(img.spare, page)
		}
	}
	clear(img.pages)
	slices.Sort(addresses)
	return img.read(addresses)
}

// load reads the pages of parts of length bytes that the image does not have.
func (img *image) load(parts []uint64, length uint64) error {
	var addresses []uint64
	for _, at := range parts {
		first, last := at&^(pageBytes-1), (at+length-1)&^(pageBytes-1)
		for n := range (last-first)/pageBytes + 1 {
			if _, known := img.pages[first+n*pageBytes]; !known {
				addresses = append(addresses, first+n*pageBytes)
			}
		}
	}
	slices.Sort(addresses)
	return img.read(slices.Compact(addresses))
}

// read reads pages at sorted addresses.
func (img *image) read(addresses []uint64) error {
	if len(img.pages)+len(addresses) > maxImagePages {
		return errTooLarge
	}
	pages := make([]*Page, len(addresses))
	for i := range pages {
		if n := len(img.spare); n > 0 {
			pages[i], img.spare = img.spare[n-1], img.spare[:n-1]
		} else {
			pages[i] = new(Page)
		}
	}
	if err := img.memory.ReadPages(addresses, pages); err != nil {
		return err
	}
	for i, at := range addresses {
		img.pages[at] = pages[i]
	}
	return nil
}

// bytes returns length bytes from an address on, of pages that were loaded. ok is false if one is unreadable.
func (img *image) bytes(at, length uint64) (data []byte, ok bool) {
	if at+length < at {
		return nil, false
	}
	page, offset := img.pages[at&^(pageBytes-1)], at&(pageBytes-1)
	if page == nil {
		return nil, false
	}
	if offset+length <= pageBytes {
		return page[offset : offset+length], true
	}
	data = make([]byte, 0, length)
	for data = append(data, page[offset:]...); uint64(len(data)) < length; {
		page = img.pages[at+uint64(len(data))]
		if page == nil {
			return nil, false
		}
		data = append(data, page[:min(pageBytes, length-uint64(len(data)))]...)
	}
	return data, true
}

// prefix is bytes, but returns only what is readable.
func (img *image) prefix(at, length uint64) []byte {
	for end := at + length; end > at; end = (end - 1) &^ (pageBytes - 1) {
		if data, ok := img.bytes(at, end-at); ok {
			return data
		}
	}
	return nil
}

// word returns 8 bytes of data as a number.
func word(data []byte, at int) uint64 { return binary.LittleEndian.Uint64(data[at:]) }
