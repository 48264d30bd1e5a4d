//go:build linux

package rowwriter

import (
	"maps"
	"strings"

	"github.com/gpurec/gpurec/symbolize"
)

// kernelKey names a kernel handle of a process; handles are used again after an
// unload, the newest name holds.
type kernelKey struct {
	pid    uint32
	handle uint64
}

type kernelName struct{ mangled, display string }

// kernelNames are the names of kernels by handle. What they take is bounded: a program can make
// up as many names as it likes.
type kernelNames struct {
	byHandle map[kernelKey]kernelName
	behind   map[kernelKey]struct{} // those of byHandle that were read behind the handle, where no call named it
	texts    map[string]kernelName  // by mangled name: the same kernel has many handles
	room     int                    // bytes
	told     bool                   // that there is no more room
}

const (
	// maxNameBytes bounds names and what maps take for them; PyTorch has some MB.
	maxNameBytes = 48 << 20
	// handleBytes is about what an entry of byHandle and behind takes, textBytes one of texts beside its texts.
	handleBytes, textBytes = 128, 128
)

func newKernelNames() kernelNames {
	return kernelNames{
		byHandle: make(map[kernelKey]kernelName), behind: make(map[kernelKey]struct{}),
		texts: make(map[string]kernelName), room: maxNameBytes,
	}
}

// name returns a name with its readable form.
func (n *kernelNames) name(mangled []byte) kernelName {
	if known, ok := n.texts[string(mangled)]; ok {
		return known
	}
	name := kernelName{mangled: string(mangled)}
	name.display = symbolize.Demangle(name.mangled)
	return name
}

// add notes what a handle stands for, read behind it or named by a call, and reports
// whether there was room.
func (n *kernelNames) add(key kernelKey, name kernelName, behind bool) bool {
	cost := 0
	if _, ok := n.byHandle[key]; !ok {
		cost = handleBytes
	}
	_, known := n.texts[name.mangled]
	if !known {
		cost += textBytes + len(name.mangled) + len(name.display)
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

// distrust drops all names that were read behind handles, and returns how many there were.
func (n *kernelNames) distrust() int {
	count := len(n.behind)
	maps.DeleteFunc(n.byHandle, func(k kernelKey, _ kernelName) bool { _, drop := n.behind[k]; return drop })
	n.behind = make(map[kernelKey]struct{})
	return count
}

// forget drops the handles of processes that are gone, and names that nobody else has.
func (n *kernelNames) forget(gone map[int32]bool) {
	maps.DeleteFunc(n.byHandle, func(k kernelKey, _ kernelName) bool { return gone[int32(k.pid)] })
	left := *n
	*n = newKernelNames()
	n.told = left.told
	for key, name := range left.byHandle {
		_, behind := left.behind[key]
		n.add(key, name, behind)
	}
}
