//go:build linux

package library

import (
	"regexp"

	"github.com/gpurec/gpurec/bpf"
)

// collectivesFileName matches the file names of NCCL and of RCCL, which has the same API. Other files are searched for
// NCCL's functions: see exports.go.
var collectivesFileName = regexp.MustCompile(`^lib(nccl|rccl)(-[0-9a-f]+)?\.so(\.[0-9.]+)?$`)

// collectivesFile is the file name of NCCL that programs load.
const collectivesFile = "libnccl.so.2"

// listCollectives returns the functions of NCCL to probe. The name pncclX is that of a function without
// interception; usually ncclX is at the same address.
func listCollectives() (list []bpf.ProbeSymbol) {
	for row := range bpf.CollectiveFunctions {
		name := bpf.CollectiveFunctions[row].Name
		list = append(list,
			bpf.ProbeSymbol{Name: name, Cookie: bpf.CollectiveCookie(row)},
			bpf.ProbeSymbol{Name: "p" + name, Cookie: bpf.CollectiveCookie(row)})
	}
	return list
}
