//go:build linux

package hostmetric

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
)

// mountText is the text of mountinfo on a machine with both versions of cgroups.
const mountText = `25 1 254:0 / / rw,relatime - ext4 /dev/root rw
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / ROOT/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
34 31 0:31 / ROOT/cpuset rw,relatime - cgroup cgroup rw,cpuset
41 31 0:38 / ROOT/a\040unified rw,relatime - cgroup2 cgroup2 rw,nsdelegate
bad line
`

// writeTree writes files below a folder.
func writeTree(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTightestLimit(t *testing.T) {
	testclass.Unit(t)
	const membership = "4:cpuset:/job\n3:cpu,cpuacct:/kubepods/pod1/c1\n1:name=systemd:/x\n0::/kubepods/pod1/c1\n"
	for name, test := range map[string]struct {
		files  map[string]string
		cores  float64
		path   string
		folder string // "" if there is no limit
	}{
		"none": {},
		"v2 unlimited": {files: map[string]string{
			"a unified/kubepods/pod1/c1/cpu.max": "max 100000\n",
		}},
		"v1 unlimited": {files: map[string]string{
			"cpu,cpuacct/kubepods/cpu.cfs_quota_us": "-1\n", "cpu,cpuacct/kubepods/cpu.cfs_period_us": "100000\n",
		}},
		"v2 ancestor": {files: map[string]string{
			"a unified/kubepods/pod1/c1/cpu.max": "400000 100000\n",
			"a unified/kubepods/pod1/cpu.max":    "150000 100000\n",
			"a unified/kubepods/cpu.max":         "6400000 100000\n",
		}, cores: 1.5, path: "/kubepods/pod1", folder: "a unified/kubepods/pod1"},
		"v1 is tighter": {files: map[string]string{
			"a unified/kubepods/pod1/c1/cpu.max":            "400000 100000\n",
			"cpu,cpuacct/kubepods/cpu.cfs_quota_us":         "10000\n",
			"cpu,cpuacct/kubepods/cpu.cfs_period_us":        "50000\n",
			"cpu,cpuacct/kubepods/pod1/c1/cpu.cfs_quota_us": "-1\n",
		}, cores: 0.2, path: "/kubepods", folder: "cpu,cpuacct/kubepods"},
		"equal limits": {files: map[string]string{
			"a unified/kubepods/pod1/c1/cpu.max": "100000 100000\n",
			"a unified/kubepods/pod1/cpu.max":    "100000 100000\n",
		}, cores: 1, path: "/kubepods/pod1/c1", folder: "a unified/kubepods/pod1/c1"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			writeTree(t, root, test.files)
			mounts := parseMounts(strings.ReplaceAll(mountText, "ROOT", root))
			if len(mounts) != 2 || mounts[0].isV2 || !mounts[1].isV2 {
				t.Fatalf("%+v", mounts)
			}
			got, ok, unseen := findLimit(mounts, parseMembership(membership))
			if ok != (test.folder != "") || unseen {
				t.Fatalf("%+v, %v, unseen %v", got, ok, unseen)
			}
			if ok && (got.cores != test.cores || got.path != test.path || got.dir != filepath.Join(root, test.folder)) {
				t.Errorf("%+v", got)
			}
			if v2, ok := findV2(mounts, parseMembership(membership)); !ok || v2.path != "/kubepods/pod1/c1" {
				t.Errorf("%+v, %v", v2, ok)
			}
		})
	}
}

// TestContainers checks mounts of a part of the tree, and cgroups outside of it.
func TestContainers(t *testing.T) {
	testclass.Unit(t)
	for _, test := range []struct {
		root, path, dir string
	}{
		{"/", "/", "/m"},
		{"/", "/a/b", "/m/a/b"},
		{"/docker/1", "/docker/1", "/m"},
		{"/docker/1", "/docker/1/x", "/m/x"},
		{"/docker/1", "/docker/12", ""},
		{"/docker/1", "/", ""},
		{"/", "/../other", ""},
		{"/", "/a/../../../etc", ""},
		{"/..", "/../other", ""},
		{"/", "relative", ""},
		{"/", "", ""},
	} {
		m := mount{"/m", test.root, true}
		got, ok := m.cgroupOf(parseMembership("0::" + test.path + "\n"))
		if ok != (test.dir != "") || got.dir != test.dir {
			t.Errorf("%s in %s: %+v, %v", test.path, test.root, got, ok)
		}
		if all := m.ancestors(got); ok && all[len(all)-1].dir != "/m" {
			t.Errorf("%s in %s: ancestors %+v", test.path, test.root, all)
		}
	}
	_, _, unseen := findLimit([]mount{{"/m", "/", true}}, parseMembership("0::/../x\n"))
	if !unseen {
		t.Error("a cgroup outside of the mount is not named")
	}
}

func TestParsers(t *testing.T) {
	testclass.Unit(t)
	for text, want := range map[string]float64{
		"max 100000\n": 0, "-1 100000": 0, "50000 100000": 0.5, "0 100000": 0, "1 0": 0, "": 0, "1": 0, "x y": 0,
		"400000 100000\n": 4,
	} {
		if got, ok := parseMax(text); got != want || ok != (want > 0) {
			t.Errorf("%q: %v, %v", text, got, ok)
		}
	}
	v1, ok := parseThrottling("nr_periods 33\nnr_throttled 30\nthrottled_time 2390000001\n")
	if !ok || v1 != (throttling{33, 30, 2390000001}) {
		t.Errorf("v1: %+v, %v", v1, ok)
	}
	v2, ok := parseThrottling("usage_usec 1\nnr_periods 33\nnr_throttled 30\nthrottled_usec 2390000\nnr_bursts 0\n")
	if !ok || v2 != (throttling{33, 30, 2390000000}) {
		t.Errorf("v2: %+v, %v", v2, ok)
	}
	if got, ok := parseThrottling("usage_usec 1\nuser_usec 2\n"); ok {
		t.Errorf("a cgroup without limits: %+v", got)
	}
	ns, ok := parsePressure("some avg10=95.82 avg60=90.89 avg300=69.13 total=1337327934\nfull avg10=0 total=7\n")
	if !ok || ns != 1337327934000 {
		t.Errorf("pressure of %d ns, %v", ns, ok)
	}
	read, written, ok := parseIO(
		"rchar: 6976\nwchar: 0\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 1\n",
	)
	if !ok || read != 4096 || written != 8192 {
		t.Errorf("%d bytes read, %d written, %v", read, written, ok)
	}
}

// FuzzParsers parses hostile texts.
func FuzzParsers(f *testing.F) {
	f.Add(mountText, "3:cpu:/a/b\n0::/../c\n")
	f.Add("1 2 3:4 /r \\057\\1 - cgroup2 x rw", "throttled_usec 99999999999999999999\nsome total=9223372036854775807\n")
	f.Fuzz(func(t *testing.T, mountInfo, text string) {
		of := parseMembership(text)
		for _, m := range parseMounts(mountInfo) {
			c, ok := m.cgroupOf(of)
			if !ok {
				continue
			}
			if c.dir != filepath.Clean(m.dir) &&
				!strings.HasPrefix(c.dir, strings.TrimSuffix(filepath.Clean(m.dir), "/")+"/") {
				t.Errorf("%q is not below %q", c.dir, m.dir)
			}
			if all := m.ancestors(c); len(all) == 0 || len(all) > maxDepth {
				t.Errorf("%d ancestors", len(all))
			}
		}
		if cores, ok := parseMax(text); ok && !(cores > 0) {
			t.Errorf("a limit of %v", cores)
		}
		if n, _ := parseThrottling(text); n.throttledNs < 0 || n.periods < 0 || n.throttled < 0 {
			t.Errorf("%+v", n)
		}
		if ns, _ := parsePressure(text); ns < 0 {
			t.Errorf("%d ns", ns)
		}
		if read, written, _ := parseIO(text); read < 0 || written < 0 {
			t.Errorf("%d, %d", read, written)
		}
	})
}
