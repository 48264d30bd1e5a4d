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

// FindLoadable returns the libraries to probe that the process, or a program that it starts, could
// load: libcuda, the source of PyTorch's allocator events, and its autograd engine. It searches the folders in the
// process's environment, program and root. Probes that are attached before a library is mapped miss
// no call.
func (c *Cache) FindLoadable(p *process.Process, allocator AllocatorMode) []*Library {
	env := readEnvironment(p)
	var found []*Library
	add := func(dirs []string, names ...string) {
		for _, dir := range dirs {
			for _, lib := range allocator.SelectLibraries(c.openLibraries(p, dir, names...)) {
				if !slices.Contains(found, lib) {
					found = append(found, lib)
				}
			}
		}
	}
	loaded := append(filepath.SplitList(env["LD_LIBRARY_PATH"]), runPaths(p)...)
	add(loaded, driverFile, allocatorFile, reportFile, collectivesFile, engineFile)
	add(systemDirs(), driverFile, collectivesFile)
	add(torchDirs(p, env), allocatorFile, reportFile, engineFile)
	return found
}

// File names of libraries that programs load.
const (
	driverFile    = "libcuda.so.1"
	allocatorFile = "libc10_cuda.so"
	reportFile    = "libc10.so"
	engineFile    = "libtorch_cpu.so"
)

// openLibraries returns the libraries with these names in a folder of a process.
func (c *Cache) openLibraries(p *process.Process, dir string, names ...string) (libs []*Library) {
	for _, name := range names {
		path := filepath.Join(dir, name)
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
		if lib, err := c.addFile(file, path); err == nil {
			libs = append(libs, lib)
		}
	}
	return libs
}

// readEnvironment returns the environment of a process, empty if it cannot be read.
func readEnvironment(p *process.Process) map[string]string {
	env := make(map[string]string)
	text, err := p.ReadEnvironment()
	if err != nil {
		return env
	}
	for kv := range strings.SplitSeq(text, "\x00") {
		if name, value, ok := strings.Cut(kv, "="); ok {
			env[name] = value
		}
	}
	return env
}

// systemDirs returns the folders in which programs find libcuda by default.
func systemDirs() []string {
	return append(
		readLinkerCacheDirs(),
		"/usr/lib/"+multiarchDir(),
		"/lib/"+multiarchDir(),
		"/usr/lib64",
		"/usr/lib",
		"/usr/local/nvidia/lib64",
		"/usr/local/cuda/compat",
		"/usr/lib/wsl/lib",
	)
}

// torchDirs returns the folders of PyTorch's libraries of the Python interpreters that the process
// may run: its own program, the first python3 in PATH, and active environments.
func torchDirs(p *process.Process, env map[string]string) []string {
	prefixes := []string{env["VIRTUAL_ENV"], env["CONDA_PREFIX"], "/usr", "/usr/local"}
	if home := env["HOME"]; home != "" {
		prefixes = append(prefixes, filepath.Join(home, ".local"))
	}
	if command, err := p.ReadProcFile("cmdline", process.MaxEnvironmentBytes); err == nil {
		program, _, _ := strings.Cut(command, "\x00")
		prefixes = append(prefixes, filepath.Dir(filepath.Dir(program))) // a link in a virtual environment
	}
	if program, err := os.Readlink(p.Path("exe")); err == nil {
		prefixes = append(prefixes, filepath.Dir(filepath.Dir(program)))
	}
	root := p.Path("root")
	for _, dir := range filepath.SplitList(env["PATH"]) {
		if _, err := os.Stat(filepath.Join(root, dir, "python3")); err == nil && filepath.IsAbs(dir) {
			prefixes = append(prefixes, filepath.Dir(dir))
			break
		}
	}
	var dirs []string
	for _, prefix := range prefixes {
		if !filepath.IsAbs(prefix) {
			continue
		}
		// The only error of Glob is a wrong pattern: a prefix with brackets.
		found, _ := filepath.Glob(filepath.Join(root, prefix, "lib/python3*/*-packages/torch/lib"))
		for _, dir := range found {
			if dir = strings.TrimPrefix(dir, root); !slices.Contains(dirs, dir) {
				dirs = append(dirs, dir)
			}
		}
	}
	return dirs[:min(len(dirs), maxTorchDirs)]
}

// maxTorchDirs limits the number of installed PyTorchs that are probed before one is loaded.
const maxTorchDirs = 8

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
