//go:build linux

package snapshot

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/record/host"
	"github.com/gpurec/gpurec/record/privilege"
)

// ErrNoBTF is the reason if the kernel has no type information (CONFIG_DEBUG_INFO_BTF).
var ErrNoBTF = errors.New("the kernel has no BTF type information (/sys/kernel/btf/vmlinux)")

// ErrTooOld is the reason if the kernel lacks a function that the programs call.
var ErrTooOld = errors.New("needs Linux 5.15 or newer")

// Reader takes snapshots of processes. Its methods must not run concurrently.
type Reader struct {
	objects    bpf.HostStackObjects
	links      map[linkKey]int
	selectsOne bool // links select one process, since Linux 6.1
	text       []byte
	samples    *sampler
}

// linkKey identifies an iterator: a program and the process that it visits.
type linkKey struct {
	stacks bool
	pid    int
	tid    int // 0: all threads of the process
}

// Open loads the programs. Call Close to release them. Errors wrap ErrNoBTF, ErrTooOld or are a
// *privilege.Error.
func Open() (*Reader, error) {
	if _, err := os.Stat("/sys/kernel/btf/vmlinux"); errors.Is(err, os.ErrNotExist) {
		return nil, ErrNoBTF
	}
	r := newReader()
	err := r.load(false)
	if err == nil {
		return r, nil
	}
	var denied *privilege.Error
	if errors.As(err, &denied) {
		return nil, err
	}
	if plain, perr := OpenPlain(); perr == nil {
		return plain, nil
	}
	if host.IsOlderRelease(host.KernelRelease(), 5, 15) {
		return nil, fmt.Errorf("%w: %w", ErrTooOld, err)
	}
	return nil, err
}

// OpenPlain loads the programs as on kernels before 5.18, which cannot copy user stacks.
func OpenPlain() (*Reader, error) {
	r := newReader()
	if err := r.load(true); err != nil {
		return nil, err
	}
	return r, nil
}

func newReader() *Reader { return &Reader{links: make(map[linkKey]int), selectsOne: true} }

// load loads the programs. withoutStacks leaves out the program that copies user stacks.
func (r *Reader) load(withoutStacks bool) error {
	spec, err := bpf.LoadHostStack()
	if err != nil {
		return fmt.Errorf("read BPF programs: %w", err)
	}
	if withoutStacks {
		// The same program under another name: the kernel need not know the function.
		spec.Programs["read_stacks"] = spec.Programs["read_states"].Copy()
	}
	err = spec.LoadAndAssign(&r.objects, nil)
	if err == nil {
		return nil
	}
	if errors.Is(err, unix.EPERM) {
		if have, cerr := privilege.ReadEffective(); cerr == nil {
			return have.ExplainLoadError(fmt.Errorf("load BPF programs: %w", err))
		}
	}
	return fmt.Errorf("load BPF programs: %w", err)
}

// Close releases the programs.
func (r *Reader) Close() {
	for _, fd := range r.links {
		unix.Close(fd)
	}
	if r.samples != nil {
		r.samples.close()
	}
	r.objects.Close()
}

// States calls visit for each thread of a process, without its user stack. It never waits for the
// process. It leaves out threads of Done.
func (r *Reader) States(pid int, visit func(*Snapshot)) error { return r.iterate(pid, false, visit) }

// Stacks calls visit for each thread of a process, with the top of its user stack. It waits if the
// stack's memory must be read from a file. Snapshot.Stack is valid until visit returns.
func (r *Reader) Stacks(pid int, visit func(*Snapshot)) error { return r.iterate(pid, true, visit) }

// OneState is States for one thread. tid is its number in the caller's PID namespace.
func (r *Reader) OneState(pid, tid int, visit func(*Snapshot)) error {
	return r.iterateOne(linkKey{false, pid, tid}, visit)
}

// OneStack is Stacks for one thread.
func (r *Reader) OneStack(pid, tid int, visit func(*Snapshot)) error {
	return r.iterateOne(linkKey{true, pid, tid}, visit)
}

// ForgetLinks releases what the reader keeps for threads and processes.
func (r *Reader) ForgetLinks() {
	for _, fd := range r.links {
		unix.Close(fd)
	}
	clear(r.links)
}

// maxLinks bounds the kept iterators.
const maxLinks = 1024

// iterateOne runs an iterator on one thread. Before Linux 6.1, it visits all threads of the process, and
// leaves out the others.
func (r *Reader) iterateOne(key linkKey, visit func(*Snapshot)) error {
	if len(r.links) >= maxLinks {
		r.ForgetLinks()
	}
	return r.iterateLink(key, func(s *Snapshot) {
		if int(s.Tid) == key.tid || int(s.NsTid) == key.tid {
			visit(s)
		}
	})
}

// Done leaves a thread out of later snapshots, until Reset.
func (r *Reader) Done(s *Snapshot) error {
	err := r.objects.Done.Put(s.Tid, s.StartNs)
	if errors.Is(err, unix.E2BIG) {
		return nil // the map is full: the thread gets more snapshots than needed
	}
	return err
}

// Reset forgets the threads of Done.
func (r *Reader) Reset() error {
	keys := make([]uint32, 0, 64)
	var tid uint32
	var start uint64
	for all := r.objects.Done.Iterate(); all.Next(&tid, &start); {
		keys = append(keys, tid)
	}
	for _, tid := range keys {
		if err := r.objects.Done.Delete(tid); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("reset snapshots: %w", err)
		}
	}
	return nil
}

// readBytes is the length of one read of an iterator. The kernel's buffer has 32 KiB.
const readBytes = 64 << 10

// iterate runs one of the iterators.
func (r *Reader) iterate(pid int, stacks bool, visit func(*Snapshot)) error {
	return r.iterateLink(linkKey{stacks, pid, 0}, visit)
}

// iterateLink runs the iterator of a key.
func (r *Reader) iterateLink(key linkKey, visit func(*Snapshot)) error {
	linkFD, err := r.link(key)
	if err != nil {
		return err
	}
	file, err := createIterator(linkFD)
	if err != nil {
		return err
	}
	defer file.Close()
	if r.text == nil {
		r.text = make([]byte, readBytes)
	}
	for {
		n, err := file.Read(r.text)
		// The kernel returns whole records.
		for data := r.text[:n]; len(data) > 0; {
			s, rest, ok := parse(data)
			if !ok {
				return errors.New("read threads: a record is cut off")
			}
			visit(s)
			data = rest
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read threads: %w", err)
		}
	}
}

// link returns the link of an iterator.
func (r *Reader) link(key linkKey) (int, error) {
	if fd, ok := r.links[key]; ok {
		return fd, nil
	}
	program := r.objects.ReadStates
	if key.stacks {
		program = r.objects.ReadStacks
	}
	if r.selectsOne {
		fd, err := createLink(program, uint32(key.pid), uint32(key.tid))
		if err == nil {
			r.links[key] = fd
			return fd, nil
		}
		if !errors.Is(err, unix.E2BIG) && !errors.Is(err, unix.EINVAL) {
			return 0, fmt.Errorf("attach iterator of threads: %w", err)
		}
		r.selectsOne = false // before Linux 6.1
	}
	if err := r.objects.OnlyTgid.Set(uint32(key.pid)); err != nil {
		return 0, fmt.Errorf("select process: %w", err)
	}
	all := linkKey{key.stacks, 0, 0}
	fd, ok := r.links[all]
	if ok {
		return fd, nil
	}
	fd, err := createLink(program, 0, 0)
	if err != nil {
		return 0, fmt.Errorf("attach iterator of threads: %w", err)
	}
	r.links[all] = fd
	return fd, nil
}

// Commands and types of bpf(2) that the module has no function for: a link of an iterator over the
// threads of one process.
const (
	commandLinkCreate = 28
	commandIterCreate = 33
	attachTraceIter   = 28
)

// createLink attaches an iterator to one thread, or to the threads of a process if tid is 0, or of all
// processes if both are 0.
func createLink(program *ebpf.Program, pid, tid uint32) (int, error) {
	info := struct{ tid, pid, pidfd uint32 }{pid: pid}
	if tid != 0 { // the kernel takes only one of them
		info.tid, info.pid = tid, 0
	}
	attr := struct {
		program, target, attachType, flags uint32
		info                               uint64
		infoBytes                          uint32
		_                                  [36]byte
	}{program: uint32(program.FD()), attachType: attachTraceIter}
	if pid != 0 {
		attr.info, attr.infoBytes = uint64(uintptr(unsafe.Pointer(&info))), uint32(unsafe.Sizeof(info))
	}
	fd, _, errno := unix.Syscall(unix.SYS_BPF, commandLinkCreate, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	runtime.KeepAlive(&info)
	runtime.KeepAlive(program)
	if errno != 0 {
		return 0, errno
	}
	return int(fd), nil
}

// createIterator starts one run of an iterator.
func createIterator(link int) (*os.File, error) {
	attr := struct{ link, flags uint32 }{link: uint32(link)}
	fd, _, errno := unix.Syscall(unix.SYS_BPF, commandIterCreate, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	if errno != 0 {
		return nil, fmt.Errorf("start iterator of threads: %w", errno)
	}
	return os.NewFile(fd, "threads"), nil
}
