//go:build linux

package hoststack

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/process"
)

// descriptorCalls are system calls that wait for the descriptor in their first argument.
var descriptorCalls = map[string]bool{
	"read": true, "readv": true, "pread64": true, "preadv": true, "preadv2": true, "recvfrom": true,
	"recvmsg": true, "recvmmsg": true, "accept": true, "accept4": true, "connect": true, "write": true,
	"writev": true, "pwrite64": true, "pwritev": true, "pwritev2": true, "sendto": true, "sendmsg": true,
	"sendmmsg": true, "sendfile": true, "sendfile64": true, "splice": true, "tee": true, "fsync": true,
	"fdatasync": true, "sync_file_range": true, "syncfs": true, "ioctl": true, "flock": true, "fcntl": true,
	"fallocate": true, "ftruncate": true, "getdents": true, "getdents64": true, "fstat": true, "newfstat": true,
	"close": true, "copy_file_range": true, "readahead": true, "fadvise64": true,
}

// Limits of the tables in /proc.
const (
	maxSocketTableBytes = 8 << 20
	maxFdInfoBytes      = 64 << 10
	// maxWatched bounds the descriptors of one poll that are named.
	maxWatched = 64
	// maxTargets bounds the names in a Target.
	maxTargets = 3
	// maxTargetBytes bounds a Target, which can be the path of a file of the process.
	maxTargetBytes = 1024
)

// descriptors names the descriptors of a process. It reads /proc only, which never waits for the
// process or for a file server. It keeps the tables of sockets from snapshot to snapshot.
type descriptors struct {
	process *process.Process
	sockets map[string]socket // by inode
	readAt  time.Time         // of the tables
}

// Ages of the tables of sockets. They are read again for an unknown socket, or after a while, since a
// socket gets its address when it connects. Large tables take milliseconds.
const (
	minTableAge = time.Second
	maxTableAge = 10 * time.Second
)

// socket is an entry of a table of sockets.
type socket struct{ reason, target string }

// describe returns the reason of a wait for a descriptor, and what the descriptor refers to.
// The reason is "" if the descriptor cannot be read.
func (d *descriptors) describe(fd uint64) (reason, target string) {
	link, err := os.Readlink(d.process.Path("fd/" + strconv.FormatUint(fd, 10)))
	if err != nil {
		return "", ""
	}
	if inode, ok := strings.CutPrefix(link, "socket:["); ok {
		return d.describeSocket(strings.TrimSuffix(inode, "]"))
	}
	reason, target = describeLink(link)
	if target == "pidfd" {
		if pid := findField(d.readInfo(fd), "Pid:"); pid != "" {
			target = pid
		}
	}
	return reason, target
}

// describeLink returns the reason of a wait for a descriptor with this link, and its target.
func describeLink(link string) (reason, target string) {
	if strings.HasPrefix(link, "pipe:[") {
		return format.ReasonPipe, "pipe"
	}
	if kind, ok := strings.CutPrefix(link, "anon_inode:"); ok {
		kind = strings.Trim(kind, "[]")
		switch kind {
		case "timerfd":
			return format.ReasonSleep, kind
		case "pidfd":
			return format.ReasonChild, kind
		case "eventpoll":
			return format.ReasonPoll, kind
		}
		return format.ReasonPipe, kind
	}
	return format.ReasonFile, link
}

// describeSocket returns the reason of a wait for a socket, and its address.
func (d *descriptors) describeSocket(inode string) (reason, target string) {
	age := time.Since(d.readAt)
	if _, known := d.sockets[inode]; age > maxTableAge || !known && age > minTableAge {
		d.readAt = time.Now()
		d.sockets = make(map[string]socket)
		for _, name := range []string{"tcp", "tcp6", "udp", "udp6"} {
			addInetSockets(d.sockets, d.readTable(name))
		}
		addUnixSockets(d.sockets, d.readTable("unix"))
	}
	if s, ok := d.sockets[inode]; ok {
		return s.reason, s.target
	}
	return format.ReasonNetwork, "socket"
}

// readTable reads a table of sockets of the process's network namespace, "" if it cannot.
func (d *descriptors) readTable(name string) string {
	text, err := d.process.ReadProcFile("net/"+name, maxSocketTableBytes)
	if err != nil {
		return ""
	}
	return text
}

// readInfo reads what the kernel says of a descriptor, "" if it cannot.
func (d *descriptors) readInfo(fd uint64) string {
	text, err := d.process.ReadProcFile("fdinfo/"+strconv.FormatUint(fd, 10), maxFdInfoBytes)
	if err != nil {
		return ""
	}
	return text
}

// watched returns the descriptors that an epoll descriptor watches.
func (d *descriptors) watched(fd uint64) []uint64 { return parseWatched(d.readInfo(fd)) }

// parseWatched returns the watched descriptors in the kernel's text on an epoll descriptor.
func parseWatched(info string) (list []uint64) {
	for line := range strings.Lines(info) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != "tfd:" || len(list) == maxWatched {
			continue
		}
		if n, err := strconv.ParseUint(fields[1], 10, 31); err == nil {
			list = append(list, n)
		}
	}
	return list
}

// describeAll returns the reason of a wait for one of several descriptors, and their targets.
func (d *descriptors) describeAll(fds []uint64) (reason, target string) {
	if len(fds) == 1 {
		if reason, target = d.describe(fds[0]); reason == format.ReasonFile && !strings.HasPrefix(target, "/dev/") {
			reason = format.ReasonPipe // poll returns at once for files: it is a named pipe
		}
		return reason, target
	}
	var names []string
	for _, fd := range fds[:min(len(fds), maxWatched)] {
		if _, name := d.describe(fd); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if more := len(names) - maxTargets; more > 0 {
		names = append(names[:maxTargets], fmt.Sprintf("%d more", more))
	}
	return format.ReasonPoll, strings.Join(names, ", ")
}

// findField returns the value of a line "NAME VALUE" of a text, "" if there is none.
func findField(text, name string) string {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// addInetSockets adds the sockets of a table such as /proc/net/tcp. The target of a connected socket is
// the address of the other end, that of another one its own.
func addInetSockets(sockets map[string]socket, table string) {
	const local, remote, inode, columns = 1, 2, 9, 10
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) < columns {
			continue
		}
		address, ok := parseInetAddress(fields[remote])
		if ok && address.Port() == 0 {
			address, ok = parseInetAddress(fields[local])
		}
		if ok {
			sockets[fields[inode]] = socket{format.ReasonNetwork, address.String()}
		}
	}
}

// parseInetAddress parses an address of /proc/net: 32-bit words in the byte order of the machine, in
// hexadecimal, and the port.
func parseInetAddress(text string) (netip.AddrPort, bool) {
	host, service, ok := strings.Cut(text, ":")
	raw, err := hex.DecodeString(host)
	port, perr := strconv.ParseUint(service, 16, 16)
	if !ok || err != nil || perr != nil || len(raw) != 4 && len(raw) != 16 {
		return netip.AddrPort{}, false
	}
	for word := range slices.Chunk(raw, 4) {
		slices.Reverse(word)
	}
	address, ok := netip.AddrFromSlice(raw)
	return netip.AddrPortFrom(address.Unmap(), uint16(port)), ok
}

// addUnixSockets adds the sockets of /proc/net/unix. A socket without a path is one of a pair.
func addUnixSockets(sockets map[string]socket, table string) {
	const inode, name = 6, 7
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) <= inode || fields[0] == "Num" {
			continue
		}
		s := socket{format.ReasonPipe, "unix socket"}
		if len(fields) > name {
			s.target = "unix socket " + fields[name]
		}
		sockets[fields[inode]] = s
	}
}
