//go:build linux

package snapshot

import (
	"bytes"
	"fmt"
	"strings"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/gpurec/gpurec/bpf"
)

// KernelSymbol returns the function at a kernel address, and its module, "" for the kernel itself.
func (r *Reader) KernelSymbol(addr uint64) (function, module string, err error) {
	request := bpf.HostStackHostSymbol{Address: addr}
	if _, err := r.objects.NameKernelAddress.Run(
		&ebpf.RunOptions{Context: &request, ContextOut: &request},
	); err != nil {
		return "", "", fmt.Errorf("name kernel address: %w", err)
	}
	text, _, _ := bytes.Cut(unsafe.Slice((*byte)(unsafe.Pointer(&request.Name[0])), len(request.Name)), []byte{0})
	function, module, _ = strings.Cut(string(text), " ")
	if strings.HasPrefix(function, "0x") {
		return "", "", fmt.Errorf("name kernel address %#x: no symbol", addr)
	}
	return function, strings.Trim(module, "[]"), nil
}
