//go:build linux

package torchallocator

import (
	"bytes"
	"strconv"
	"strings"
	"time"
)

// object is the DeviceCachingAllocator of a device.
type object struct {
	address uint64
	device  int
	bytes   uint64  // at most
	image   *image  // what readings of its blocks use
	survey  *survey // reads its blocks in short pauses; nil: it has paused for long enough
	// likely are surveys with layouts that nothing has verified yet.
	likely []*survey
}

// Open finds the allocators of a process. variable is the address of c10::cuda::CUDACachingAllocator::allocator, a
// pointer to the allocator in use. The error is ErrUnused, ErrDenied, ErrEnded, *OtherAllocatorError, or nil.
func Open(m Memory, variable uint64) (*Reader, error) {
	r := &Reader{image: newImage(m), now: monotonicNs, sleep: time.Sleep, quiet: quietTime}
	data, err := r.image.fetch(variable, 8)
	if err != nil {
		return nil, err
	}
	native := word(data, 0)
	if native == 0 {
		return nil, ErrUnused
	}
	if err := r.checkClass(native); err != nil {
		return nil, err
	}
	data, err = readObject(r.image, &object{address: native, bytes: nativeBytes})
	if err != nil {
		return nil, err
	}
	if found, err := r.findObjects(data); found || err != nil {
		return r, err
	}
	return nil, ErrUnused
}

// pageBytes is the size of the parts in which an object of unknown size is read.
const pageBytes = 4096

// nativeClass is the end of the mangled name of the class of PyTorch's own allocator.
const nativeClass = "6Native22NativeCachingAllocatorE"

// hasClass reports whether a mangled name is that of a class.
func hasClass(mangled, class string) bool {
	return strings.Contains(mangled, strconv.Itoa(len(class))+class)
}

// checkClass returns an error if an object is of another class than PyTorch's own allocator. By the ABI of C++, an
// object begins with a pointer to its virtual table. The word before the table points to the type information, whose
// second word points to the name.
func (r *Reader) checkClass(object uint64) error {
	at := object
	for _, offset := range []uint64{0, ^uint64(7), 8} {
		data, err := r.image.fetch(at+offset, 8)
		if err == errUnreadable {
			return &OtherAllocatorError{}
		} else if err != nil {
			return err
		}
		at = word(data, 0)
	}
	name, err := r.readText(at)
	if err != nil {
		return err
	}
	if !strings.HasSuffix(name, nativeClass) {
		return &OtherAllocatorError{Class: name}
	}
	return nil
}

// maxNameBytes is the longest name of a class that is read.
const maxNameBytes = 256

// readText returns a text of printable characters at an address, or none.
func (r *Reader) readText(at uint64) (string, error) {
	var text []byte
	for len(text) < maxNameBytes {
		part := min(32, pageBytes-(at+uint64(len(text)))%pageBytes)
		data, err := r.image.fetch(at+uint64(len(text)), part)
		if err == errUnreadable {
			return "", nil
		} else if err != nil {
			return "", err
		}
		end := bytes.IndexByte(data, 0)
		if end >= 0 {
			data = data[:end]
		}
		if bytes.ContainsFunc(data, func(c rune) bool { return c <= ' ' || c > '~' }) {
			return "", nil
		}
		if text = append(text, data...); end >= 0 {
			return string(text), nil
		}
	}
	return "", nil
}

// findObjects finds the vector of device allocators in the memory of the allocator: begin, end, and end of its memory.
func (r *Reader) findObjects(native []byte) (found bool, err error) {
	for at := 0; at+24 <= len(native); at += 8 {
		first, last, limit := word(native, at), word(native, at+8), word(native, at+16)
		if first == 0 || first%8 != 0 || last <= first || limit < last || last-first > 8*maxDevices ||
			(last-first)%8 != 0 {
			continue
		}
		list, err := r.image.fetch(first, last-first)
		if err == errUnreadable {
			continue
		} else if err != nil {
			return false, err
		}
		if found, err = r.addObjects(list); found || err != nil {
			return found, err
		}
	}
	return false, nil
}

// addObjects sets the objects to those that a list points to, if all have the two BlockPools of a
// DeviceCachingAllocator.
func (r *Reader) addObjects(list []byte) (ok bool, err error) {
	objects := make([]object, len(list)/8)
	for i := range objects {
		o := &objects[i]
		o.address, o.device, o.bytes = word(list, 8*i), i, objectBytes
		if o.address == 0 || o.address%8 != 0 {
			return false, nil
		}
	}
	for i := range objects {
		for k := range objects { // the allocators of two devices may be neighbors
			if apart := objects[k].address - objects[i].address; apart != 0 {
				objects[i].bytes = min(objects[i].bytes, apart)
			}
		}
		objects[i].image = newImage(r.image.memory)
		data, err := readObject(r.image, &objects[i])
		if err == errUnreadable {
			return false, nil
		} else if err != nil {
			return false, err
		}
		if _, ok := findPools(data, objects[i].address, 0, nil); !ok {
			return false, nil
		}
	}
	r.objects = objects
	return true, nil
}

// readObject returns the memory of an object. It ends before the first page that cannot be read.
func readObject(img *image, o *object) ([]byte, error) {
	var data []byte
	for n := uint64(0); n < o.bytes; {
		part := min(o.bytes-n, pageBytes-(o.address+n)%pageBytes)
		page, err := img.fetch(o.address+n, part)
		if err == errUnreadable && n > 0 {
			break
		} else if err != nil {
			return nil, err
		}
		data = append(data, page...)
		n += part
	}
	return data, nil
}
