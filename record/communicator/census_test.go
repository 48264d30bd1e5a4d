//go:build linux

package communicator

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"syscall"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/symbolize"
)

// image is a memory of one range. It begins at imageBase with a page of data of libnccl.
type image struct {
	bytes []byte
	reads int
}

const (
	imageBase = 0x7f0000000000
	dataBytes = 4096
)

func newImage(size int) *image { return &image{bytes: make([]byte, size)} }

func (img *image) read(spans []span) error {
	img.reads++
	for i := range spans {
		from := spans[i].at - imageBase
		if n := uint64(len(spans[i].into)); from < uint64(len(img.bytes)) && n <= uint64(len(img.bytes))-from {
			copy(spans[i].into, img.bytes[from:])
			spans[i].ok = true
		}
	}
	return nil
}

func (img *image) put(at uint64, words ...uint64) {
	for i, word := range words {
		binary.LittleEndian.PutUint64(img.bytes[at-imageBase+uint64(i)*8:], word)
	}
}

func (img *image) maps() []symbolize.Mapping {
	end := uint64(imageBase + len(img.bytes))
	return []symbolize.Mapping{
		{Start: imageBase, End: imageBase + dataBytes, Perms: "rw-p", Inode: 7, Path: "/lib/libnccl.so.2"},
		{Start: imageBase + dataBytes, End: end, Perms: "rw-p", Path: "[heap]"},
	}
}

// putObject writes a communicator.
func (img *image) putObject(at uint64, l *Layout, s *State) {
	img.put(at, magic)
	img.put(at+l.EndMagic, magic)
	img.put(at+l.Hash, s.Hash, uint64(uint32(s.Rank))|uint64(uint32(s.Size))<<32)
	if l.Counters != 0 {
		img.put(at+l.Counters, s.Counts[:]...)
	}
}

// oldest is the smallest layout. It has no counters.
var oldest = &layouts[0]

func layoutOf(t testing.TB, version string) *Layout {
	t.Helper()
	i := slices.IndexFunc(layouts, func(l Layout) bool { return l.Version == version })
	if i < 0 {
		t.Fatalf("no layout of %s", version)
	}
	return &layouts[i]
}

// TestFindAllOfProcesses comes first: later tests leave images of NCCL in the memory of this process.
func TestFindAllOfProcesses(t *testing.T) {
	testclass.Unit(t)
	own, err := readOwnMaps()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := FindAll(context.Background(), os.Getpid(), own); !errors.Is(err, ErrNoLibrary) {
		t.Errorf("a process without NCCL: %v", err)
	}
	m := newImage(1 << 16)
	if _, err := FindAll(context.Background(), 1<<22+1, m.maps()); !errors.Is(err, ErrEnded) {
		t.Errorf("no process: %v", err)
	}
	if _, err := FindAll(context.Background(), os.Getpid(), m.maps()); !errors.Is(err, ErrNoList) {
		t.Errorf("mappings that do not exist: %v", err)
	}
}

func TestFindAllReadsListsWithHoles(t *testing.T) {
	testclass.Unit(t)
	for _, version := range []string{"2.26.2", "2.28.9", "2.30.7"} {
		l := layoutOf(t, version)
		const firstObject = imageBase + 1<<16
		objectBytes := (l.EndMagic + 8 + 4095) / 4096 * 4096
		m := newImage(1<<16 + 5*int(objectBytes))
		list := uint64(imageBase + dataBytes + 64)
		m.put(imageBase+128, imageBase+dataBytes+8, list, imageBase+200, 1, 1<<60) // words that point elsewhere, too
		var want []Found
		for i, rank := range []int32{3, 0, -1, 1} {
			at := firstObject + uint64(i)*objectBytes
			s := State{
				Hash:      0xfa93daea854b060b,
				Rank:      rank,
				Size:      4,
				Counts:    [5]uint64{1, 0, 7, 0, 1 << 40},
				HasCounts: true,
			}
			m.put(list+8*uint64(2*i+1), at) // between NULL pointers
			m.putObject(at, l, &s)
			if rank >= 0 {
				want = append(want, Found{State: s, Address: at, Layout: l})
			}
		}
		m.put(list+8*40, 0x111, firstObject) // the list ends at the first word that is no pointer
		slices.SortFunc(want, func(a, b Found) int { return int(a.Rank - b.Rank) })
		got, err := findAll(context.Background(), m, m.maps())
		if err != nil {
			t.Fatalf("%s: %v", version, err)
		}
		if !slices.Equal(got.Communicators, want) || got.Unready != 1 || got.Unknown != 0 || got.IsPartial {
			t.Errorf("%s: got %+v\nwant %+v and one unready", version, got, want)
		}
	}
}

func TestFindAllExplainsWhatItCannotRead(t *testing.T) {
	testclass.Unit(t)
	m := newImage(1 << 17)
	list, object := uint64(imageBase+dataBytes+64), uint64(imageBase+1<<16)
	if _, err := findAll(context.Background(), m, m.maps()[1:]); !errors.Is(err, ErrNoLibrary) {
		t.Errorf("without NCCL: %v", err)
	}
	if _, err := findAll(context.Background(), m, m.maps()); !errors.Is(err, ErrNoList) {
		t.Errorf("without a list: %v", err)
	}
	m.put(imageBase, list)
	m.put(list, object)
	m.put(object, magic)
	var unknown *UnknownVersionError
	if _, err := findAll(context.Background(), m, m.maps()); !errors.As(err, &unknown) || unknown.Communicators != 1 {
		t.Errorf("of an unknown version: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := findAll(ctx, m, m.maps()); !errors.Is(err, ErrTimeout) {
		t.Errorf("after the deadline: %v", err)
	}
}

// TestFindAllReadsSeveralLibraries has processes with two copies of NCCL: in two libraries, or in a library and in the
// program.
func TestFindAllReadsSeveralLibraries(t *testing.T) {
	testclass.Unit(t)
	for _, c := range []struct {
		first, second string // paths of the files
		lists         []int  // files that have communicators
		want          int
	}{
		{"/app/libnccl.so.2", "/lib/libnccl.so.2", []int{0, 1}, 2},
		{"/app/libnccl-custom.so.2", "/lib/libnccl.so.2", []int{0, 1}, 2},
		{"/app/ncclstatic", "/lib/libnccl.so.2", []int{0, 1}, 2},
		{"/app/ncclstatic", "/lib/libnccl.so.2", []int{0}, 1},
		{"/app/libtorch_cuda.so", "/lib/libnccl.so.2", []int{0}, 1},
		{"/app/libnccl-net.so", "/lib/libother.so", nil, -1},
	} {
		m := newImage(1 << 17)
		maps := m.maps()
		maps[0].End, maps[0].Path = imageBase+dataBytes/2, c.first
		maps = slices.Insert(maps, 1, symbolize.Mapping{
			Start: imageBase + dataBytes/2, End: imageBase + dataBytes, Perms: "rw-p", Inode: 8, Path: c.second,
		})
		for _, file := range c.lists {
			list, object := uint64(imageBase+dataBytes+64+file*4096), uint64(imageBase+1<<15+file<<15)
			m.put(imageBase+uint64(file)*dataBytes/2, list)
			m.put(list, object)
			m.putObject(object, oldest, &State{Hash: uint64(file + 1), Size: 2})
		}
		got, err := findAll(context.Background(), m, maps)
		switch {
		case c.want < 0:
			if !errors.Is(err, ErrNoLibrary) {
				t.Errorf("%s and %s: %v", c.first, c.second, err)
			}
		case err != nil || len(got.Communicators) != c.want:
			t.Errorf("%s and %s: %+v, %v, want %d communicators", c.first, c.second, got, err, c.want)
		}
	}
}

// movingMemory changes the counters of a communicator before each read.
type movingMemory struct {
	*image
	counters uint64
	left     int // changes
}

func (m *movingMemory) read(spans []span) error {
	if m.left > 0 {
		m.left--
		m.put(m.counters, uint64(m.left))
	}
	return m.image.read(spans)
}

func TestFindAllSaysThatCountsMove(t *testing.T) {
	testclass.Unit(t)
	l := layoutOf(t, "2.26.2")
	for _, moves := range []bool{false, true} {
		m := &movingMemory{image: newImage(1 << 20)}
		list, object := uint64(imageBase+dataBytes), uint64(imageBase+1<<16)
		m.put(imageBase, list)
		m.put(list, object)
		m.putObject(object, l, &State{Hash: 1, Size: 2})
		m.counters, m.left = object+l.Counters, 18 // some readings differ
		if moves {
			m.left = 1 << 20
		}
		got, err := findAll(context.Background(), m, m.maps())
		if err != nil || len(got.Communicators) != 1 || got.Communicators[0].IsMoving != moves {
			t.Errorf("moves %v: got %+v, %v", moves, got, err)
		}
	}
}

// TestFindAllIsBounded searches memories that a hostile process has made.
func TestFindAllIsBounded(t *testing.T) {
	testclass.Unit(t)
	hostile := map[string]func(m *image){
		"each word points to itself": func(m *image) {
			for at := uint64(imageBase); at < imageBase+uint64(len(m.bytes)); at += 8 {
				m.put(at, at)
			}
		},
		"each word is the magic number": func(m *image) {
			for at := uint64(imageBase); at < imageBase+uint64(len(m.bytes)); at += 8 {
				m.put(at, magic)
			}
		},
		"many lists of the same communicators": func(m *image) {
			for at := uint64(imageBase); at < imageBase+dataBytes; at += 8 {
				m.put(at, at+dataBytes)
			}
			for at := uint64(imageBase + dataBytes); at < imageBase+1<<18; at += 8 {
				m.put(at, imageBase+1<<20+(at-imageBase)%(1<<19))
			}
			for at := uint64(imageBase + 1<<20); at < imageBase+uint64(len(m.bytes)); at += 8 {
				m.put(at, magic)
			}
		},
		"noise": func(m *image) {
			r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a seed that repeats
			for at := uint64(imageBase); at < imageBase+uint64(len(m.bytes)); at += 8 {
				m.put(at, imageBase+r.Uint64N(uint64(len(m.bytes)))&^7)
			}
		},
	}
	for name, fill := range hostile {
		m := newImage(4 << 20)
		fill(m)
		got, err := findAll(context.Background(), m, m.maps())
		if m.reads > maxReads {
			t.Errorf("%s: %d reads", name, m.reads)
		}
		if got != nil && len(got.Communicators) > maxCommunicators {
			t.Errorf("%s: %d communicators", name, len(got.Communicators))
		}
		t.Logf("%s: %d reads, %v", name, m.reads, err)
	}
}

// TestFindAllIsDenied reads the memory of this process by a process of another user.
func TestFindAllIsDenied(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	if target := os.Getenv("CENSUS_OF"); target != "" {
		pid, err := strconv.Atoi(target)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := FindAll(context.Background(), pid, newImage(1<<16).maps()); !errors.Is(err, ErrDenied) {
			t.Errorf("memory of another user: %v", err)
		}
		return
	}
	if os.Getuid() != 0 {
		t.Skip("starting a process of another user needs root")
	}
	other := exec.Command("/proc/self/exe", "-test.run=^TestFindAllIsDenied$")
	other.Env, other.Dir = []string{"CENSUS_OF=" + strconv.Itoa(os.Getpid())}, "/"
	other.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := other.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func readOwnMaps() ([]symbolize.Mapping, error) {
	file, err := os.Open("/proc/self/maps")
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return symbolize.ReadMaps(file)
}

// FuzzFindAll searches memories with any words. Each 4 bytes of the input set a word: 2 bytes say where, and 2 what.
func FuzzFindAll(f *testing.F) {
	f.Add([]byte{0, 0, 0, 2, 0, 2, 0, 4, 0, 4, 255, 255, 0, 4, 255, 255})
	f.Fuzz(func(t *testing.T, input []byte) {
		m := newImage(1 << 16)
		const object = imageBase + 1<<14
		m.putObject(object, oldest, &State{Hash: 1, Rank: 1, Size: 2})
		m.put(imageBase, imageBase+dataBytes)
		m.put(imageBase+dataBytes, object)
		for ; len(input) >= 4; input = input[4:] {
			at := imageBase + uint64(binary.LittleEndian.Uint16(input))&^7
			if at+8 > imageBase+uint64(len(m.bytes)) {
				continue
			}
			word := uint64(binary.LittleEndian.Uint16(input[2:]))
			switch word {
			case 0xffff:
				m.put(at, magic)
			case 0xfffe:
				m.put(at, 0)
			default:
				m.put(at, imageBase+word)
			}
		}
		got, err := findAll(context.Background(), m, m.maps())
		if m.reads > maxReads || (got == nil) == (err == nil) {
			t.Fatalf("%d reads, %v, %v", m.reads, got, err)
		}
		if got == nil {
			return
		}
		for i := range got.Communicators {
			c := &got.Communicators[i]
			if c.Hash == 0 || c.Rank < 0 || c.Rank >= c.Size || c.IsMoving || c.Layout == nil {
				t.Fatalf("%+v", c)
			}
			at := fmt.Sprintf("%x", c.Address)
			if i > 0 && c.Address == got.Communicators[i-1].Address {
				t.Fatalf("%s is there twice", at)
			}
		}
	})
}
