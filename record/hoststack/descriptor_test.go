//go:build linux

package hoststack

import (
	"slices"
	"testing"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

func TestLinksOfDescriptors(t *testing.T) {
	testclass.Unit(t)
	for link, want := range map[string][2]string{
		"pipe:[123]":                 {format.ReasonPipe, "pipe"},
		"anon_inode:[eventfd]":       {format.ReasonPipe, "eventfd"},
		"anon_inode:[timerfd]":       {format.ReasonSleep, "timerfd"},
		"anon_inode:[pidfd]":         {format.ReasonChild, "pidfd"},
		"anon_inode:[eventpoll]":     {format.ReasonPoll, "eventpoll"},
		"anon_inode:inotify":         {format.ReasonPipe, "inotify"},
		"/data/a b.bin":              {format.ReasonFile, "/data/a b.bin"},
		"/tmp/gone.bin (deleted)":    {format.ReasonFile, "/tmp/gone.bin (deleted)"},
		"":                           {format.ReasonFile, ""},
		"/mnt/\x1b[31mhostile\nname": {format.ReasonFile, "/mnt/\x1b[31mhostile\nname"},
	} {
		if reason, target := describeLink(link); reason != want[0] || target != want[1] {
			t.Errorf("%q: %q, %q", link, reason, target)
		}
	}
}

func TestSocketTables(t *testing.T) {
	testclass.Unit(t)
	sockets := make(map[string]socket)
	addInetSockets(
		sockets,
		`  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 11 1 0 100 0 0 10 0
   1: 0100007F:C350 0200000A:01BB 01 00000000:00000000 00:00000000 00000000     0        0 12 1 0
   2: 0000000000000000FFFF00000100007F:1F90 0000000000000000FFFF00000300000A:0050 01 0:0 0:0 0 0 0 13
   3: 00000000000000000000000000000000:0050 B80D0120000000000000000001000000:0051 01 0:0 0:0 0 0 0 14
   4: 0100007F:0050 xyz:01BB 01 0:0 0:0 0 0 0 15
   5: 0100007F:0050 0200000A 01 0:0 0:0 0 0 0 16
   6: 01:0050 0200000A0200000A:01BB 01 0:0 0:0 0 0 0 17
   7:
`,
	)
	addUnixSockets(sockets, `Num       RefCount Protocol Flags    Type St Inode Path
0000000000000000: 00000002 00000000 00010000 0001 01 21 /run/store.sock
0000000000000000: 00000003 00000000 00000000 0001 03 22
0000000000000000: 3
`)
	want := map[string]socket{
		"11": {format.ReasonNetwork, "127.0.0.1:8080"},
		"12": {format.ReasonNetwork, "10.0.0.2:443"},
		"13": {format.ReasonNetwork, "10.0.0.3:80"},
		"14": {format.ReasonNetwork, "[2001:db8::1]:81"},
		"21": {format.ReasonPipe, "unix socket /run/store.sock"},
		"22": {format.ReasonPipe, "unix socket"},
	}
	if len(sockets) != len(want) {
		t.Errorf("%d sockets: %v", len(sockets), sockets)
	}
	for inode, s := range want {
		if sockets[inode] != s {
			t.Errorf("%s: %v, not %v", inode, sockets[inode], s)
		}
	}
}

func TestWatchedDescriptors(t *testing.T) {
	testclass.Root(t)
	info := "pos:\t0\nflags:\t02\ntfd:        5 events:       19 data: 5  pos:0 ino:61af sdev:7\ntfd: 7 events: 1\n" +
		"tfd: -1 events: 1\ntfd: 99999999999 events\ntfd:\n"
	if got := parseWatched(info); !slices.Equal(got, []uint64{5, 7}) {
		t.Errorf("%v", got)
	}
	if got := findField("Pid:\t42\nNSpid:\t42\t1\n", "NSpid:"); got != "42\t1" {
		t.Errorf("%q", got)
	}
}

func FuzzSocketTables(f *testing.F) {
	f.Add("   0: 0100007F:1F90 00000000:0000 0A 0:0 0:0 0 0 0 11 1\n")
	f.Add("0: 2 0 0 1 1 21 /run/x\n")
	f.Fuzz(func(_ *testing.T, table string) {
		sockets := make(map[string]socket)
		addInetSockets(sockets, table)
		addUnixSockets(sockets, table)
		parseWatched(table)
	})
}
