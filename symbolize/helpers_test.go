package symbolize

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// skip leaves out a test for want of something on this machine; where everything must run, that is a failure.
func skip(t testing.TB, reason string) {
	t.Helper()
	if os.Getenv("GPUREC_MUST_RUN") == "1" {
		t.Fatalf("must run, but: %s", reason)
	}
	t.Skip(reason)
}

// needTools skips the test unless all programs are installed.
func needTools(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := exec.LookPath(name); err != nil {
			skip(t, name+" is not installed")
		}
	}
}

func command(t testing.TB, name string, args ...string) string {
	t.Helper()
	var stderr bytes.Buffer
	c := exec.Command(name, args...)
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, stderr.String())
	}
	return string(out)
}

// synthetic describes an ELF file that is made in memory: one executable segment and section at 0x1000, and a .symtab.
type synthetic struct {
	symbols   []elf.Sym64
	names     []byte // .strtab
	debugData []byte // .gnu_debugdata, if any
	textSize  uint64
}

// add appends a function in the text section.
func (s *synthetic) add(name string, start, size uint64, bind elf.SymBind) {
	if len(s.names) == 0 {
		s.names = []byte{0}
	}
	s.symbols = append(s.symbols, elf.Sym64{
		Name: uint32(len(s.names)), Info: elf.ST_INFO(bind, elf.STT_FUNC), Shndx: 1, Value: start, Size: size,
	})
	s.names = append(append(s.names, name...), 0)
}

const shdrOffset = 64 + 56 // section headers stand behind the file header and one program header

func (s *synthetic) bytes() []byte {
	shstr := []byte("\x00.text\x00.symtab\x00.strtab\x00.shstrtab\x00.gnu_debugdata\x00")
	nameAt := func(n string) uint32 { return uint32(bytes.Index(shstr, []byte("\x00"+n+"\x00")) + 1) }
	var syms bytes.Buffer
	check(binary.Write(&syms, binary.LittleEndian, s.symbols))
	text := max(s.textSize, 0x1000)
	offset := uint64(shdrOffset + 6*64)
	place := func(n int) uint64 { o := offset; offset += uint64(n); return o }
	sections := []elf.Section64{
		{},
		{Name: nameAt(".text"), Type: uint32(elf.SHT_PROGBITS), Addr: 0x1000, Off: 0, Size: text},
		{Name: nameAt(".symtab"), Type: uint32(elf.SHT_SYMTAB), Off: place(syms.Len()), Size: uint64(syms.Len()), Link: 3,
			Entsize: elf.Sym64Size},
		{Name: nameAt(".strtab"), Type: uint32(elf.SHT_STRTAB), Off: place(len(s.names)), Size: uint64(len(s.names))},
		{Name: nameAt(".shstrtab"), Type: uint32(elf.SHT_STRTAB), Off: place(len(shstr)), Size: uint64(len(shstr))},
		{Name: nameAt(".gnu_debugdata"), Type: uint32(elf.SHT_PROGBITS), Off: place(len(s.debugData)),
			Size: uint64(len(s.debugData))},
	}
	if len(s.debugData) == 0 {
		sections[5] = elf.Section64{}
	}
	header := elf.Header64{Type: uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Version: 1, Phoff: 64, Shoff: shdrOffset,
		Ehsize: 64, Phentsize: 56, Phnum: 1, Shentsize: 64, Shnum: uint16(len(sections)), Shstrndx: 4}
	copy(header.Ident[:], elf.ELFMAG+"\x02\x01\x01")
	load := elf.Prog64{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Vaddr: 0x1000, Filesz: text, Memsz: text}
	var out bytes.Buffer
	for _, part := range []any{header, load, sections, syms.Bytes(), s.names, shstr, s.debugData} {
		check(binary.Write(&out, binary.LittleEndian, part))
	}
	return out.Bytes()
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func open(t testing.TB, raw []byte) *Object {
	t.Helper()
	o, err := NewObject(bytes.NewReader(raw), int64(len(raw)))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// compile builds a source of testdata into a temporary folder and returns the path.
func compile(t testing.TB, source, output string, flags ...string) string {
	t.Helper()
	compiler := "gcc"
	if strings.HasSuffix(source, ".cpp") {
		compiler = "g++"
	}
	needTools(t, compiler, "nm", "strip", "objcopy")
	path := filepath.Join(t.TempDir(), output)
	command(t, compiler, append([]string{"-O1", "-o", path, filepath.Join("testdata", source)}, flags...)...)
	return path
}
