//go:build linux

package library

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/record/process"
)

// FindLoadableDrivers returns the libcuda files that the process, or a program that it starts,
// could load. It searches the folders in the process's environment and root. Probes that are
// attached before a library is mapped miss no call.
func (c *Cache) FindLoadableDrivers(p *process.Process) []*Library {
	var dirs []string
	if environ, err := p.ReadProcFile("environ", process.MaxEnvironmentBytes); err == nil {
		for kv := range strings.SplitSeq(environ, "\x00") {
			if path, ok := strings.CutPrefix(kv, "LD_LIBRARY_PATH="); ok {
				dirs = append(dirs, filepath.SplitList(path)...)
			}
		}
	}
	dirs = append(dirs, readLinkerCacheDirs()...)
	dirs = append(
		dirs,
		"/usr/lib/"+multiarchDir(),
		"/lib/"+multiarchDir(),
		"/usr/lib64",
		"/usr/lib",
		"/usr/local/nvidia/lib64",
		"/usr/local/cuda/compat",
		"/usr/lib/wsl/lib",
	)
	var found []*Library
	for _, dir := range dirs {
		path := filepath.Join(dir, "libcuda.so.1")
		var file *os.File
		var err error
		if filepath.IsAbs(dir) {
			file, err = p.OpenRegular(path, 0)
		} else {
			file, err = process.OpenRegular(filepath.Join(p.Path("cwd"), path))
		}
		if err != nil {
			continue
		}
		if lib, err := c.addFile(file, path); err == nil && !slices.Contains(found, lib) {
			found = append(found, lib)
		}
	}
	return found
}

// readLinkerCacheDirs returns the folders with a libcuda in the dynamic linker's cache.
func readLinkerCacheDirs() []string {
	out, err := exec.Command("/sbin/ldconfig", "-p").Output()
	if err != nil {
		return nil
	}
	var dirs []string
	for line := range strings.Lines(string(out)) {
		if name, path, ok := strings.Cut(
			line,
			" => ",
		); ok &&
			strings.HasPrefix(strings.TrimSpace(name), "libcuda.so.1 ") {
			dirs = append(dirs, filepath.Dir(strings.TrimSpace(path)))
		}
	}
	return dirs
}

// multiarchDir returns the name of the library folder on Debian and related distributions.
func multiarchDir() string {
	if runtime.GOARCH == "arm64" {
		return "aarch64-linux-gnu"
	}
	return "x86_64-linux-gnu"
}
