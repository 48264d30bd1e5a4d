//go:build linux

package process

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/symbolize"
)

// Limits in bytes of data in /proc that a recorded process controls. A process can make its command
// line terabytes long with prctl(PR_SET_MM_MAP). The kernel accepts 6 MiB of arguments and
// environment at an exec.
const (
	// MaxEnvironmentBytes bounds the environment of a process, in bytes.
	MaxEnvironmentBytes = 8 << 20
	maxCommandLineBytes = 128 << 10 // bytes of the command line in a recording
)

// errNotRegularFile is the error for a file that is not a regular file.
var errNotRegularFile = errors.New("is not a regular file")

// OpenRegular opens a regular file that another user may have created. It refuses FIFOs and
// devices, because opening them can block or have side effects.
func OpenRegular(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return reopenForReading(fd, path)
}

// OpenRegular opens a regular file at a path in the process's mount namespace. Symbolic links never
// lead out of the process's root.
func (p *Process) OpenRegular(path string, flags int) (*os.File, error) {
	root, err := unix.Open(p.Path("root"), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: p.Path("root"), Err: err}
	}
	defer unix.Close(root)
	fd, err := unix.Openat2(root, path, &unix.OpenHow{
		Flags: uint64(unix.O_PATH | unix.O_CLOEXEC | flags), Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return reopenForReading(fd, path)
}

// OpenMappedFile opens the mapped file of a mapping.
func (p *Process) OpenMappedFile(m symbolize.Mapping) (*os.File, error) {
	file, err := OpenRegular(p.MapFile(m))
	if err != nil && !errors.Is(err, errNotRegularFile) {
		// Reading map_files needs CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE.
		return p.OpenRegular(m.Path, 0)
	}
	return file, err
}

// reopenForReading opens the regular file behind the path descriptor fd for reading, and closes fd.
func reopenForReading(fd int, path string) (*os.File, error) {
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, &os.PathError{Op: "open", Path: path, Err: errNotRegularFile}
	}
	return os.Open(fmt.Sprintf("/proc/self/fd/%d", fd))
}

// ReadAtMost returns at most the first limit bytes of a file.
func ReadAtMost(file io.Reader, limit int64) (string, error) {
	var text strings.Builder
	_, err := io.Copy(&text, io.LimitReader(file, limit))
	return text.String(), err
}

// ReadProcFile returns at most the first limit bytes of a file in /proc/PID whose content the
// process controls.
func (p *Process) ReadProcFile(name string, limit int64) (string, error) {
	file, err := os.Open(p.Path(name))
	if err != nil {
		return "", err
	}
	defer file.Close()
	return ReadAtMost(file, limit)
}

// maxExecWait is the longest time that ReadEnvironment waits for the end of a call of exec.
const maxExecWait = time.Second

// ReadEnvironment returns the text of /proc/PID/environ, at most MaxEnvironmentBytes of it. While a process calls
// exec, its new memory has no environment for a moment, and the file is empty: ReadEnvironment waits for it.
func (p *Process) ReadEnvironment() (string, error) {
	text, err := p.ReadProcFile("environ", MaxEnvironmentBytes)
	if text != "" || err != nil {
		return text, err
	}
	for end := time.Now().Add(maxExecWait); !p.hasEnvironment() && p.Alive() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	return p.ReadProcFile("environ", MaxEnvironmentBytes)
}

// hasEnvironment reports whether the kernel has set up the environment of the process: its end, field 51 of proc(5),
// is 0 before.
func (p *Process) hasEnvironment() bool {
	const envEnd = 51 - 3 // the first field after the name is the third
	stat, err := os.ReadFile(p.Path("stat"))
	if err != nil {
		return true // there is nothing to wait for
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	return len(fields) > envEnd && fields[envEnd] != "0"
}
