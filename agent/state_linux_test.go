package agent

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

func openTestState(t *testing.T, path string) *state {
	t.Helper()
	s, err := openState(path, filepath.Join(path, "agent.sock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	return s
}

// writeRing writes a ring of an earlier agent with some calls.
func writeRing(t *testing.T, s *state, calls int) string {
	t.Helper()
	path := s.newRing(time.Now())
	w, err := format.Create(path, format.Options{Limits: format.Limits{Ring: true}})
	if err != nil {
		t.Fatal(err)
	}
	rows := make([]format.Row, calls)
	for i := range rows {
		rows[i] = format.Row{Kind: format.KindLaunch, StartNs: time.Now().UnixNano(), Ptr: int64(i) * 0x9e3779b97f4a7c1}
	}
	meta := format.Meta{EndNs: time.Now().UnixNano()}
	if err := errors.Join(w.Write(format.ClassCall, rows), w.Rotate(meta), w.Close()); err != nil {
		t.Fatal(err)
	}
	return path + format.SegmentSuffix
}

func TestTriggerReachesIntoTheRingOfAnEarlierAgent(t *testing.T) {
	testclass.Unit(t)
	path := t.TempDir()
	s := openTestState(t, path)
	ring := writeRing(t, s, 100)
	if err := s.adoptRings(); err != nil || len(s.adopted) != 1 {
		t.Fatal(s.adopted, err)
	}
	now := time.Now()
	tr := format.Trigger{ID: "20260101T000000Z-oom-a1", Kind: "oom", AtNs: now.UnixNano(), BeforeNs: 1e9}
	if ids, err := s.addBefore(tr, now.Add(-time.Minute)); len(ids) > 0 || err != nil {
		t.Errorf("the new ring reaches back far enough: %q, %v", ids, err)
	}
	ids, err := s.addBefore(tr, now)
	if err != nil || len(ids) != 1 {
		t.Fatal(ids, err)
	}
	if err := s.dropRings(time.Hour, now, false); err != nil || len(s.adopted) != 1 {
		t.Error("the ring is not too old", err)
	}
	if err := s.dropRings(time.Minute, now.Add(time.Hour), false); err != nil || len(s.adopted) != 0 {
		t.Error("the ring is too old", err)
	}
	if _, err := os.Stat(ring); !errors.Is(err, fs.ErrNotExist) {
		t.Error("the folder stays", err)
	}
	folder := filepath.Join(path, capturesFolder, ids[0])
	sealed, _, err := format.Seal(folder+format.SealingSuffix, folder+format.CaptureSuffix, format.Owner{})
	if err != nil || sealed.ID != ids[0] || !sealed.Cut {
		t.Fatal(sealed, err)
	}
	rec, err := format.Open(folder + format.CaptureSuffix)
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	if rec.NumRows() != 100 {
		t.Errorf("%d rows", rec.NumRows())
	}
}

func TestSecondAgentIsRefused(t *testing.T) {
	testclass.Unit(t)
	path := t.TempDir()
	openTestState(t, path)
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go serveStatus(listener)
	if _, err := openState(path, socket); !errors.Is(err, ErrRunning) {
		t.Error(err)
	}
}

// TestFullDisk fills a small file system with captures. The oldest go first, and none is torn.
func TestFullDisk(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	path := t.TempDir()
	if err := syscall.Mount("tmpfs", path, "tmpfs", 0, "size=8m"); err != nil {
		testclass.Missing(t, "cannot mount a file system: "+err.Error())
	}
	t.Cleanup(func() { _ = syscall.Unmount(path, syscall.MNT_DETACH) })
	s := openTestState(t, path)
	var kept []string
	refused := 0
	limits := Captures{Bytes: 1 << 40, FreePct: 50}
	for i := range 40 {
		at := time.Date(2026, 1, 1, 0, i, 0, 0, time.UTC)
		kind := "oom"
		if i == 0 {
			kind = "xid"
		}
		id := at.Format(captureTimeLayout) + "-" + kind + "-a1"
		enough, err := s.expire(limits, at)
		if err != nil {
			t.Fatal(err)
		}
		if !enough {
			refused++
			continue
		}
		if !sealOne(t, s, id) {
			continue // the disk was full
		}
		kept = append(kept, id)
	}
	all, err := format.ListCaptures(s.captures)
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, c := range all {
		rec, err := format.Open(filepath.Join(path, capturesFolder, c.ID+c.State))
		if err != nil {
			t.Errorf("torn: %v", err)
			continue
		}
		rec.Close()
		left = append(left, c.ID)
	}
	if len(left) >= len(kept) || len(left) < 2 || left[0] != kept[0] || !slices.Contains(left, kept[len(kept)-1]) {
		t.Errorf("of %q stay %q", kept, left)
	}
	if rest := left[1:]; !slices.Equal(rest, kept[len(kept)-len(rest):]) {
		t.Errorf("the newest do not stay: of %q stay %q", kept, left)
	}
	t.Logf("%d captures were sealed, %d refused, %d stay", len(kept), refused, len(left))
}

// sealOne makes and seals a capture of about half a megabyte. It returns false if the disk is full.
func sealOne(t *testing.T, s *state, id string) bool {
	t.Helper()
	ring := writeRing(t, s, 60_000)
	defer os.RemoveAll(ring)
	root, err := os.OpenRoot(ring)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	folder := filepath.Join(s.path, capturesFolder, id)
	err = format.FreezeFolder(root, s.captures, &format.Trigger{ID: id, Kind: "oom"})
	if err == nil {
		_, _, err = format.Seal(folder+format.SealingSuffix, folder+format.CaptureSuffix, format.Owner{})
	}
	for _, state := range []string{format.PendingSuffix, format.SealingSuffix} {
		if rerr := format.RemoveCapture(s.captures, format.Capture{ID: id, State: state}); rerr != nil {
			t.Fatal(rerr)
		}
	}
	if err != nil && !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	return err == nil
}
