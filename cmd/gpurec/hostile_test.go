//go:build linux

package main

import (
	"bufio"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"
	"unsafe"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"golang.org/x/sys/unix"
)

// escapes is a text with terminal escape sequences: they set the window title and a color. gpurec
// must not print them.
const escapes = "\x1b]0;evil\a\x1b[31m"

// hostile is the main function of the program "hostile FOLDER", which attacks its recorder. It
// prints "ready". After a line of input it maps every file of FOLDER as code and prints "mapped".
// After another line of input it exits.
func hostile() {
	fail := func(err error) {
		if err != nil {
			fmt.Println("hostile:", err)
			os.Exit(1)
		}
	}
	in := bufio.NewReader(os.Stdin)
	fail(os.WriteFile(fmt.Sprintf("/proc/%d/comm", os.Getpid()), []byte("\x1b]0;e\a<script>"), 0))
	fail(growArguments())
	jit := fmt.Sprintf("/tmp/perf-%d.map", os.Getpid())
	fail(unix.Mkfifo(jit, 0o600))
	defer os.Remove(jit)
	fmt.Println("ready")
	_, err := in.ReadString('\n')
	fail(err)
	files, err := os.ReadDir(os.Args[1])
	fail(err)
	for _, file := range files {
		fail(mapCode(filepath.Join(os.Args[1], file.Name())))
	}
	fmt.Println("mapped")
	_, _ = in.ReadString('\n')
}

// mapCode maps the code segment of a file as the dynamic linker does. The files are modified copies
// of simcuda's driver.
func mapCode(path string) error {
	driver, err := elf.Open(filepath.Join(simcudaDir(), "libcuda.so.1"))
	if err != nil {
		return err
	}
	defer driver.Close()
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	for _, p := range driver.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 {
			if _, err := unix.Mmap(
				int(f.Fd()),
				int64(p.Off)&^4095,
				int(p.Filesz),
				unix.PROT_READ|unix.PROT_EXEC,
				unix.MAP_PRIVATE,
			); err != nil {
				return err
			}
		}
	}
	return nil
}

// growArguments makes /proc/self/cmdline and environ 1 TiB long. prctl(PR_SET_MM_MAP), which needs
// no privilege, points them at untouched memory.
func growArguments() error {
	const size = 1 << 40
	at, _, errno := unix.Syscall6(
		unix.SYS_MMAP,
		0,
		size,
		unix.PROT_READ,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE,
		^uintptr(0),
		0,
	)
	if errno != 0 {
		return fmt.Errorf("map 1 TiB: %w", errno)
	}
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return err
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	number := func(field int) (n uint64) { // field numbers as in proc(5)
		_, _ = fmt.Sscan(fields[field-3], &n)
		return n
	}
	m := struct {
		startCode, endCode, startData, endData, startBrk, brk, startStack, argStart, argEnd, envStart, envEnd, auxv uint64
		auxvSize, exeFd                                                                                             uint32
	}{
		startCode: number(
			26,
		),
		endCode:   number(27),
		startData: number(45),
		endData:   number(46),
		startBrk:  number(47),
		brk:       number(47),
		startStack: number(
			28,
		),
		argStart: uint64(at),
		argEnd:   uint64(at) + size,
		envStart: uint64(at),
		envEnd:   uint64(at) + size,
		exeFd:    ^uint32(0),
	}
	if _, _, errno := unix.Syscall6(
		unix.SYS_PRCTL,
		unix.PR_SET_MM,
		unix.PR_SET_MM_MAP,
		uintptr(unsafe.Pointer(&m)),
		unsafe.Sizeof(m),
		0,
		0,
	); errno != 0 {
		return fmt.Errorf("prctl(PR_SET_MM_MAP): %w", errno)
	}
	return nil
}

// crafted writes the files that the hostile program maps.
func crafted(t *testing.T, dir string) {
	t.Helper()
	good, err := os.ReadFile(filepath.Join(simcudaDir(), "libcuda.so.1"))
	must(t, err)
	write := func(name string, content []byte) { must(t, os.WriteFile(filepath.Join(dir, name), content, 0o755)) }
	patched := func(at int, value ...byte) []byte {
		content := slices.Clone(good)
		copy(content[at:], value)
		return content
	}
	const machine, sectionTable = 18, 0x28
	// A driver without probes: the kernel rejects the breakpoints.
	traps := slices.Clone(good)
	file, err := elf.NewFile(bytes.NewReader(good))
	must(t, err)
	text := file.Section(".text")
	for i := text.Offset; i < text.Offset+text.Size; i++ {
		traps[i] = 0xcc
	}
	write("libcuda.so.1", traps)
	write("libcuda.so.2", []byte("\x7fELF, but not really"))
	write("riscv.so", patched(machine, byte(elf.EM_RISCV), 0))
	write("far.so", patched(sectionTable, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f))
	write("new\nline"+escapes+" (deleted)", good)
	write("sparse.so", good)
	must(t, os.Truncate(filepath.Join(dir, "sparse.so"), 1<<40))
	write("sections.so", sections(good))
	// PyTorch stores its version in a file next to the folder of the allocator library.
	write("libc10_cuda.so", good)
	must(t, unix.Mkfifo(filepath.Join(filepath.Dir(dir), "version.py"), 0o600))
}

// sections adds 60,000 section headers to a library. The section names are suffixes of one name of
// 1 MiB.
func sections(library []byte) []byte {
	const count = 60_000
	out := slices.Clone(library)
	names := len(out)
	out = append(append(out, bytes.Repeat([]byte{'x'}, 1<<20)...), 0)
	binary.LittleEndian.PutUint64(out[0x28:], uint64(len(out)))
	binary.LittleEndian.PutUint16(out[0x3c:], count)
	binary.LittleEndian.PutUint16(out[0x3e:], 1)
	for i := range count {
		s := elf.Section64{Name: uint32(i), Type: uint32(elf.SHT_PROGBITS)}
		if i == 1 {
			s = elf.Section64{Type: uint32(elf.SHT_STRTAB), Off: uint64(names), Size: 1<<20 + 1}
		}
		out, _ = binary.Append(out, binary.LittleEndian, s) // Append fails only for types without a fixed size
	}
	return out
}

// hostileProgram is a running process of the program hostile.
type hostileProgram struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.Writer
	lines *bufio.Scanner
}

// startHostile starts the program hostile and waits until it is ready. The program is killed at the
// end of the test.
func startHostile(t *testing.T, env []string, args ...string) *hostileProgram {
	t.Helper()
	path, err := exec.LookPath("hostile") // this test binary: testscript.Main adds it to PATH
	must(t, err)
	cmd := exec.Command(path, args...)
	cmd.Env, cmd.Stderr = append(os.Environ(), env...), os.Stderr
	stdin, err := cmd.StdinPipe()
	must(t, err)
	stdout, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	p := &hostileProgram{t: t, cmd: cmd, stdin: stdin, lines: bufio.NewScanner(stdout)}
	p.expect("ready")
	return p
}

func (p *hostileProgram) expect(word string) {
	p.t.Helper()
	if !p.lines.Scan() || p.lines.Text() != word {
		p.t.Fatalf("the program prints %q, want %q", p.lines.Text(), word)
	}
}

// mapFiles makes the program map its files.
func (p *hostileProgram) mapFiles() {
	p.t.Helper()
	fmt.Fprintln(p.stdin)
	p.expect("mapped")
}

// TestHostileProcess records two programs: one with known calls, and a hostile one. The hostile
// program tries to hang or crash the recorder, to fill its memory, and to write to its terminal.
func TestHostileProcess(t *testing.T) {
	testclass.Root(t)
	v := startVictim(t, 2000)
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "libs", "lib"), 0o755))
	libs := filepath.Join(dir, "libs", "lib")
	crafted(t, libs)
	pipes := filepath.Join(dir, "pipes")
	must(t, os.Mkdir(pipes, 0o755))
	must(t, unix.Mkfifo(filepath.Join(pipes, "libcuda.so.1"), 0o600))

	program := startHostile(t, []string{"LD_LIBRARY_PATH=" + pipes}, libs, escapes)

	output, stderr := filepath.Join(dir, "r.parquet"), new(messages)
	gpurec, err := exec.LookPath("gpurec")
	must(t, err)
	recorder := exec.Command(
		gpurec,
		"record",
		"--max-overhead",
		"off",
		"--wait",
		"-p",
		fmt.Sprint(v.cmd.Process.Pid),
		"-p",
		fmt.Sprint(program.cmd.Process.Pid),
		"-o",
		output,
		"--nvml-interval",
		"0",
		"--keep-returns",
		"--ready-file",
		output+".ready",
	)
	recorder.Stderr = stderr
	must(t, recorder.Start())
	ended := make(chan error, 1)
	go func() { ended <- recorder.Wait() }()
	defer func() { _ = recorder.Process.Kill() }()
	await := func(state string, ok func() bool) {
		t.Helper()
		waitFor(t, state, func() bool {
			select {
			case err := <-ended:
				t.Fatalf("the recorder ended before %s: %v; messages:\n%.4000q", state, err, stderr)
			default:
			}
			return ok()
		})
	}
	await("all probes are attached", func() bool { _, err := os.Stat(output + ".ready"); return err == nil })
	program.mapFiles()
	warned := []string{"warning: calls of process", "attach to", "libcuda.so.1"}
	await("the recorder has read the mapped files", func() bool { return stderr.has(warned...) })
	waitForCalls(t, v.ledger, 2000) // calls of the known program, with stacks
	must(t, recorder.Process.Signal(os.Interrupt))
	select {
	case err := <-ended:
		must(t, err)
	case <-time.After(patience):
		t.Fatal("the recorder does not end after Ctrl-C")
	}
	t.Logf("%s", stderr)
	if strings.ContainsFunc(
		strings.ReplaceAll(stderr.String(), "\n", ""),
		func(r rune) bool { return !unicode.IsPrint(r) },
	) {
		t.Errorf("the recorder prints escape sequences of the hostile program: %q", stderr)
	}
	if usage, ok := recorder.ProcessState.SysUsage().(*syscall.Rusage); !ok || usage.Maxrss > 600<<10 {
		t.Errorf("the recorder used %d KiB of memory", usage.Maxrss)
	}
	checkKnownProgram(t, output)
}

// checkKnownProgram checks that the recording has all calls of the program with known calls, and
// complete stacks.
func checkKnownProgram(t *testing.T, output string) {
	t.Helper()
	rec, err := format.Open(output)
	must(t, err)
	defer rec.Close()
	if total := rec.Meta.Totals(); total.Recorded < 1000 || total.Lost > 0 {
		t.Errorf("%d calls are recorded, %d lost", total.Recorded, total.Lost)
	}
	complete := 0
	must(t, rec.Rows(func(r *format.Row) error {
		if r.StackStatus == format.StackComplete {
			complete++
		}
		return nil
	}, format.ClassStack))
	if complete == 0 {
		t.Error("the recording has no complete stack")
	}
}
