package identity

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

const podUID = "0f7d2c1a-9b3e-4c5d-8e6f-1a2b3c4d5e6f"

var containerHex = strings.Repeat("0123456789abcdef", 4)

// values returns an identity as text: "key:value" in the order of JSON, without sources.
func values(t *testing.T, id format.Identity) string {
	t.Helper()
	id.Sources = nil
	text, err := json.Marshal(id)
	if err != nil {
		t.Fatal(err)
	}
	return strings.NewReplacer(`"`, "", "{", "", "}", "", ",", " ").Replace(string(text))
}

func TestIdentityIsReadFromLaunchers(t *testing.T) {
	testclass.Unit(t)
	for name, c := range map[string]struct {
		environ []string
		cgroup  string
		want    string
	}{
		"nothing": {[]string{"PATH=/bin", "HOSTNAME=box"}, "0::/user.slice\n", ""},
		"torchrun": {
			[]string{
				"RANK=9",
				"WORLD_SIZE=16",
				"LOCAL_RANK=1",
				"LOCAL_WORLD_SIZE=8",
				"GROUP_RANK=1",
				"TORCHELASTIC_RUN_ID=demo",
				"TORCHELASTIC_RESTART_COUNT=2", "MASTER_ADDR=n0", "MASTER_PORT=29500",
			},
			"",
			"rank:9 world_size:16 local_rank:1 local_world_size:8 node_rank:1 job:demo attempt:2",
		},
		"torchrun without an id": {
			[]string{"RANK=0", "WORLD_SIZE=1", "TORCHELASTIC_RUN_ID=none", "MASTER_ADDR=n0", "MASTER_PORT=29500"},
			"",
			"rank:0 world_size:1 job:n0:29500",
		},
		"an address of IPv6": {[]string{"MASTER_ADDR=fe80::1", "MASTER_PORT=1"}, "", "job:[fe80::1]:1"},
		"torchrun below srun": {
			[]string{
				"SLURM_PROCID=1",
				"SLURM_NTASKS=2",
				"SLURM_LOCALID=0",
				"SLURM_NODEID=1",
				"RANK=11",
				"WORLD_SIZE=16",
				"LOCAL_RANK=3",
				"TORCHELASTIC_RUN_ID=none", "SLURM_JOB_ID=77", "SLURM_STEP_ID=0", "SLURMD_NODENAME=n1",
			},
			"",
			"rank:11 world_size:16 local_rank:3 node_rank:1 node:n1 job:77 slurm_job:77 slurm_step:0",
		},
		"an id of torchrun below srun": {[]string{"RANK=0", "TORCHELASTIC_RUN_ID=demo", "SLURM_JOB_ID=77"}, "", "rank:0 job:demo slurm_job:77"},
		"srun": {
			[]string{
				"SLURM_PROCID=5",
				"SLURM_NTASKS=8",
				"SLURM_LOCALID=1",
				"SLURM_NODEID=1",
				"SLURMD_NODENAME=n1",
				"SLURM_JOB_ID=104",
				"SLURM_STEP_ID=2",
				"SLURM_RESTART_COUNT=1", "SLURM_ARRAY_JOB_ID=100", "SLURM_ARRAY_TASK_ID=4", "SLURM_CLUSTER_NAME=alps",
			},
			"",
			"rank:5 world_size:8 local_rank:1 node_rank:1 node:n1 job:104 attempt:1 slurm_job:104 slurm_step:2 " +
				"slurm_array:100_4 cluster:alps",
		},
		"srun with PMIx": {[]string{"PMIX_RANK=5", "SLURM_PROCID=5", "SLURM_NTASKS=8", "SLURM_LOCALID=1"}, "", "rank:5 world_size:8 local_rank:1"},
		"a batch script": {
			[]string{"SLURM_PROCID=0", "SLURM_NTASKS=8", "SLURM_LOCALID=0", "SLURM_JOB_ID=7"},
			"0::/system.slice/slurmstepd.scope/job_7/step_batch/user/task_0\n", "job:7 slurm_job:7 slurm_step:batch " +
				"slurm_task:0",
		},
		"Open MPI": {[]string{
			"OMPI_COMM_WORLD_RANK=3",
			"OMPI_COMM_WORLD_SIZE=4",
			"OMPI_COMM_WORLD_LOCAL_RANK=1",
			"OMPI_COMM_WORLD_LOCAL_SIZE=2",
			"PMIX_RANK=3",
			"SLURM_PROCID=0", "SLURM_NTASKS=1",
		}, "", "rank:3 world_size:4 local_rank:1 local_world_size:2"},
		"MPICH":             {[]string{"PMI_RANK=3", "PMI_SIZE=4", "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=2"}, "", "rank:3 world_size:4 local_rank:1 local_world_size:2"},
		"only a local rank": {[]string{"LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "NODE_RANK=0", "SLURM_PROCID=0", "SLURM_LOCALID=0"}, "", "local_rank:1 local_world_size:2 node_rank:0"},
		"a local rank in MPI": {
			[]string{"LOCAL_RANK=1", "OMPI_COMM_WORLD_RANK=3", "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_LOCAL_RANK=1"},
			"",
			"rank:3 world_size:4 local_rank:1",
		},
		"Ray": {[]string{"RAY_JOB_ID=01000000"}, "", "job:01000000"},
		"JobSet": {
			[]string{"KUBERNETES_SERVICE_HOST=10.0.0.1", "HOSTNAME=train-w-0-3-x7k", "JOB_COMPLETION_INDEX=3", "JOBSET_NAME=train", "JOBSET_RESTART_ATTEMPT=1"},
			"",
			"node_rank:3 job:train attempt:1 pod:train-w-0-3-x7k",
		},
		"LeaderWorkerSet": {
			[]string{
				"LWS_LEADER_ADDRESS=vllm-0.vllm.default",
				"LWS_WORKER_INDEX=1",
				"POD_NAME=vllm-0-1",
				"POD_NAMESPACE=default",
				"NODE_NAME=gke-1",
				"HOSTNAME=other", "KUBERNETES_SERVICE_HOST=10.0.0.1",
			},
			"0::/kubepods/burstable/pod" + podUID + "/" + containerHex + "\n",
			"node_rank:1 node:gke-1 job:vllm-0.vllm.default pod:vllm-0-1 namespace:default pod_uid:" + podUID,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := values(t, FindIdentity(strings.Join(c.environ, "\x00")+"\x00", c.cgroup)); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestIdentityIsReadFromCgroups(t *testing.T) {
	testclass.Unit(t)
	static := "0123456789abcdef0123456789abcdef"
	underscored := strings.ReplaceAll(podUID, "-", "_")
	for cgroup, want := range map[string]string{
		"0::/system.slice/slurmstepd.scope/job_1234/step_0/user/task_3": "job:1234 slurm_job:1234 " +
			"slurm_step:0 slurm_task:3",
		"0::/system.slice/n1_slurmstepd.scope/job_1234/step_extern/user/task_special": "job:1234 slurm_job:1234 " +
			"slurm_step:extern",
		"0::/system.slice/slurmstepd.scope/job_1234": "job:1234 slurm_job:1234",
		"9:memory:/slurm_n1/uid_1000/job_42/step_1/task_0\n0::/system.slice/slurmd": "job:42 slurm_job:42 " +
			"slurm_step:1 slurm_task:0",
		"9:memory:/slurm/uid_1000/job_42/step_batch": "job:42 slurm_job:42 " +
			"slurm_step:batch",
		"0::/system.slice/slurmstepd.scope/job_5/step_0/user/task_0/slurm/uid_0/job_6": "job:5 slurm_job:5 " +
			"slurm_step:0 slurm_task:0",
		"0::/system.slice/slurmstepd.scope/job_x/step_0":                   "",
		"0::/system.slice/slurmstepd.scope/job_" + strings.Repeat("9", 21): "",
		"0::/slurm/job_5": "",
		"0::/kubepods/besteffort/pod" + podUID + "/" + containerHex:                                                           "pod_uid:" + podUID,
		"0::/kubepods.slice/kubepods-pod" + underscored + ".slice/cri-containerd-" + containerHex + ".scope":                  "pod_uid:" + podUID,
		"0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable-pod" + underscored + ".slice/crio-x.scope":       "pod_uid:" + podUID,
		"11:cpu:/kubepods/burstable/pod" + static + "/" + containerHex:                                                        "pod_uid:" + static,
		"0::/../../pod" + podUID + "/" + containerHex:                                                                         "pod_uid:" + podUID,
		"0::/kubepods/pod" + podUID + "/" + containerHex + "/kubepods/pod" + strings.Repeat("f", 32):                          "pod_uid:" + podUID,
		"0::/machine.slice/libpod-" + containerHex + ".scope":                                                                 "",
		"0::/kubepods/podX/" + containerHex:                                                                                   "",
		"0::/system.slice/docker-" + containerHex + ".scope\n1:name=systemd:/kubepods/burstable/pod" + podUID + "\n2:x:/podX": "pod_uid:" + podUID,
	} {
		if got := values(t, FindIdentity("", cgroup)); got != want {
			t.Errorf("%s\ngot  %s\nwant %s", cgroup, got, want)
		}
	}
}

func TestSlurmsCgroupBeatsItsEnvironment(t *testing.T) {
	testclass.Unit(t)
	id := FindIdentity(
		"SLURM_JOB_ID=999\x00SLURM_STEP_ID=7\x00",
		"0::/system.slice/slurmstepd.scope/job_5/step_0/user/task_0",
	)
	if id.Job != "5" || id.SlurmJob != "5" || id.SlurmStep != "0" || id.Sources["job"] != "cgroup" ||
		id.Sources["slurm_step"] != "cgroup" {
		t.Errorf("%+v", id)
	}
}

func TestEveryValueHasItsSource(t *testing.T) {
	testclass.Unit(t)
	id := FindIdentity(
		"RANK=1\x00WORLD_SIZE=2\x00LOCAL_RANK=1\x00OMPI_COMM_WORLD_RANK=1\x00OMPI_COMM_WORLD_LOCAL_SIZE=2\x00SLURM_NODEID=0\x00NODE_NAME=n\x00"+
			"MASTER_ADDR=a\x00MASTER_PORT=1\x00SLURM_RESTART_COUNT=0\x00SLURM_ARRAY_JOB_ID=1\x00SLURM_ARRAY_TASK_ID=2\x00SLURM_CLUSTER_NAME=c\x00"+
			"KUBERNETES_SERVICE_HOST=h\x00HOSTNAME=pod\x00POD_NAMESPACE=ns\x00",
		"0::/kubepods/pod"+podUID,
	)
	want := map[string]string{
		"rank":             "env RANK",
		"world_size":       "env WORLD_SIZE",
		"local_rank":       "env LOCAL_RANK",
		"local_world_size": "env OMPI_COMM_WORLD_LOCAL_SIZE",
		"node_rank":        "env SLURM_NODEID",
		"node":             "env NODE_NAME",
		"job":              "env MASTER_ADDR, MASTER_PORT",
		"attempt":          "env SLURM_RESTART_COUNT",
		"slurm_array":      "env SLURM_ARRAY_JOB_ID, SLURM_ARRAY_TASK_ID",
		"cluster":          "env SLURM_CLUSTER_NAME",
		"pod":              "env HOSTNAME",
		"namespace":        "env POD_NAMESPACE",
		"pod_uid":          "cgroup",
	}
	if !maps.Equal(id.Sources, want) {
		t.Errorf("got  %v\nwant %v", id.Sources, want)
	}
	if got := keysOf(t, id); !slices.Equal(got, slices.Sorted(maps.Keys(want))) {
		t.Errorf("values %v, sources %v", got, want)
	}
}

// keysOf returns the sorted JSON keys of an identity's values.
func keysOf(t *testing.T, id format.Identity) []string {
	t.Helper()
	id.Sources = nil
	text, err := json.Marshal(id)
	if err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	if err := json.Unmarshal(text, &object); err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(maps.Keys(object))
}

func TestHostileValuesAreLeftOut(t *testing.T) {
	testclass.Unit(t)
	for _, value := range []string{
		"",
		"-1",
		"+1",
		" 1",
		"1 ",
		"1.0",
		"0x1",
		"one",
		"1\n",
		"99999999999999999999",
		fmt.Sprint(maxRankOrSize + 1),
		strings.Repeat("0", 11),
		"１",
	} {
		if id := FindIdentity("RANK="+value+"\x00", ""); id.Known() {
			t.Errorf("RANK=%q: %s", value, values(t, id))
		}
	}
	for _, value := range []string{
		"",
		"a\nb",
		"a\x1b[31m",
		"a\tb",
		"\xff\xfe",
		"a\u202eb",
		"a\u2028b",
		strings.Repeat("x", maxValueBytes+1),
	} {
		if id := FindIdentity(
			"TORCHELASTIC_RUN_ID="+value+"\x00POD_NAME="+value+"\x00MASTER_ADDR="+value+"\x00MASTER_PORT=1\x00",
			"",
		); id.Known() {
			t.Errorf("%q: %s", value, values(t, id))
		}
	}
	for _, port := range []string{"", "0", "65536", "x"} {
		if id := FindIdentity("MASTER_ADDR=n0\x00MASTER_PORT="+port, ""); id.Known() {
			t.Errorf("port %q: %s", port, values(t, id))
		}
	}
	for environ, want := range map[string]string{
		"RANK=3\x00RANK=4\x00":                                      "rank:3", // the first one, like getenv
		"RANK=\x00RANK=4\x00SLURM_PROCID=2\x00":                     "rank:2",
		"RANK\x00RANK=4":                                            "rank:4",
		"RANK=5\x00WORLD_SIZE=5\x00":                                "rank:5", // the world size must be above the rank
		"WORLD_SIZE=5\x00":                                          "",
		"rank=1\x00XRANK=1\x00RANK_=1\x00=RANK=1\x00":               "",
		"SLURM_JOB_ID=7a\x00SLURM_ARRAY_JOB_ID=1\x00":               "",
		"SLURM_JOB_ID=" + strings.Repeat("7", 21) + "\x00":          "",
		"TORCHELASTIC_RUN_ID=" + strings.Repeat("x", maxValueBytes): "job:" + strings.Repeat("x", maxValueBytes),
	} {
		if got := values(t, FindIdentity(environ, "")); got != want {
			t.Errorf("%q: got %s, want %s", environ, got, want)
		}
	}
}

func TestNothingElseOfTheEnvironmentIsKept(t *testing.T) {
	testclass.Unit(t)
	secret := "wJalrXUtnFEMI"
	text, err := json.Marshal(
		FindIdentity(
			"AWS_SECRET_ACCESS_KEY="+secret+"\x00RANK=1\x00MY_"+secret+"=1\x00RANKS="+secret+"\x00KUBERNETES_SERVICE_HOST="+secret+"\x00",
			secret,
		),
	)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"rank":1,"sources":{"rank":"env RANK"}}`; string(text) != want {
		t.Errorf("got %s, want %s", text, want)
	}
}

func FuzzOf(f *testing.F) {
	f.Add(
		"RANK=1\x00WORLD_SIZE=2\x00MASTER_ADDR=n0\x00MASTER_PORT=29500\x00",
		"0::/system.slice/slurmstepd.scope/job_5/step_0/user/task_0",
	)
	f.Add(
		"KUBERNETES_SERVICE_HOST=h\x00HOSTNAME=pod\x00LWS_WORKER_INDEX=3\x00",
		"0::/kubepods.slice/kubepods-pod"+strings.ReplaceAll(podUID, "-", "_")+".slice/x",
	)
	f.Add(
		"SLURM_JOB_ID=1\x00SLURM_ARRAY_JOB_ID=1\x00SLURM_ARRAY_TASK_ID=2\x00RANK=-1\x00PMIX_RANK=\xff\x00",
		"9:memory:/slurm/uid_0/job_9\n",
	)
	f.Fuzz(func(t *testing.T, environ, cgroup string) {
		id := FindIdentity(environ, cgroup)
		for key, n := range map[string]*int{
			"rank":             id.Rank,
			"world_size":       id.WorldSize,
			"local_rank":       id.LocalRank,
			"local_world_size": id.LocalWorldSize,
			"node_rank":        id.NodeRank, "attempt": id.Attempt, "slurm_task": id.SlurmTask,
		} {
			if n != nil && (*n < 0 || *n > maxRankOrSize) {
				t.Errorf("%s is %d", key, *n)
			}
		}
		if id.Rank != nil && id.WorldSize != nil && *id.Rank >= *id.WorldSize {
			t.Errorf("rank %d of %d", *id.Rank, *id.WorldSize)
		}
		for _, text := range []string{
			id.Node,
			id.Job,
			id.SlurmJob,
			id.SlurmStep,
			id.SlurmArray,
			id.Cluster,
			id.Pod,
			id.Namespace,
			id.PodUID,
		} {
			if text != "" && !isPrintableText(text) {
				t.Errorf("text %q", text)
			}
		}
		if got := keysOf(t, id); !slices.Equal(got, slices.Sorted(maps.Keys(id.Sources))) {
			t.Errorf("values %v, sources %v", got, id.Sources)
		}
	})
}
