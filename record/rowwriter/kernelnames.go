//go:build linux

package rowwriter

import (
	"maps"
	"strings"

	"github.com/gpurec/gpurec/symbolize"
)

// kernelKey identifies a kernel by its process and handle. The driver reuses handles after an
// unload; the latest name of a handle is valid.
type kernelKey struct {
	pid    uint32
	handle uint64
}

// kernelName is a kernel's name, as in the object file and demangled.
type kernelName struct{ mangled, display string }

// kernelNames maps kernel handles to names, within maxKernelNameBytes of memory: a program can use
// any number of names.
type kernelNames struct {
	byHandle map[kernelKey]kernelName
	// behind has the handles in byHandle whose name was read through the handle, not seen in a
	// call.
	behind      map[kernelKey]struct{}
	texts       map[string]kernelName // by mangled name: a kernel can have many handles
	room        int                   // remaining bytes of maxKernelNameBytes
	noteWritten bool                  // the note that no room is left has been written
}

const (
	// maxKernelNameBytes limits the memory for names and their map entries. PyTorch needs a few MB.
	maxKernelNameBytes = 48 << 20
	// bytesPerHandle is the approximate size of the entries of a handle in byHandle and behind,
	// bytesPerKernelName that of an entry of texts without the names.
	bytesPerHandle, bytesPerKernelName = 128, 128
)

func newKernelNames() kernelNames {
	return kernelNames{
		byHandle: make(map[kernelKey]kernelName), behind: make(map[kernelKey]struct{}),
		texts: make(map[string]kernelName), room: maxKernelNameBytes,
	}
}

// demangleName returns a kernel's name with its demangled form.
func (n *kernelNames) demangleName(mangled []byte) kernelName {
	if known, ok := n.texts[string(mangled)]; ok {
		return known
	}
	name := kernelName{mangled: string(mangled)}
	name.display = symbolize.Demangle(name.mangled)
	return name
}

// addName sets the name of a kernel handle and reports whether there was room for it. behind means
// that the name was read through the handle, not seen in a call.
func (n *kernelNames) addName(key kernelKey, name kernelName, behind bool) bool {
	cost := 0
	if _, ok := n.byHandle[key]; !ok {
		cost = bytesPerHandle
	}
	_, known := n.texts[name.mangled]
	if !known {
		cost += bytesPerKernelName + len(name.mangled) + len(name.display)
	}
	if cost > n.room {
		return false
	}
	if !known {
		name = kernelName{strings.Clone(name.mangled), strings.Clone(name.display)}
		n.texts[name.mangled] = name
	}
	n.byHandle[key] = name
	if behind {
		n.behind[key] = struct{}{}
	} else {
		delete(n.behind, key)
	}
	n.room -= cost
	return true
}

// discardHandleNames deletes all kernel names that were read through kernel handles, and returns
// their number.
func (n *kernelNames) discardHandleNames() int {
	count := len(n.behind)
	maps.DeleteFunc(n.byHandle, func(k kernelKey, _ kernelName) bool { _, drop := n.behind[k]; return drop })
	n.behind = make(map[kernelKey]struct{})
	return count
}

// forgetProcesses deletes the kernel handles of exited processes, and kernel names without a
// handle.
func (n *kernelNames) forgetProcesses(gone map[int32]bool) {
	maps.DeleteFunc(n.byHandle, func(k kernelKey, _ kernelName) bool { return gone[int32(k.pid)] })
	left := *n
	*n = newKernelNames()
	n.noteWritten = left.noteWritten
	for key, name := range left.byHandle {
		_, behind := left.behind[key]
		n.addName(key, name, behind)
	}
}
