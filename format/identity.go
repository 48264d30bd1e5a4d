package format

// Identity describes the role of a process in its job: rank, node, scheduler, pod. It is part of
// the message of a process row, under the key "identity". A nil number or an empty text is unknown.
type Identity struct {
	// Rank counts the job's processes from 0 to WorldSize-1. LocalRank counts the processes of one
	// node from 0 to LocalWorldSize-1.
	Rank           *int `json:"rank,omitempty"`
	WorldSize      *int `json:"world_size,omitempty"`
	LocalRank      *int `json:"local_rank,omitempty"`
	LocalWorldSize *int `json:"local_world_size,omitempty"`
	// NodeRank counts the job's nodes from 0. Node is the scheduler's name of the process's node.
	NodeRank *int   `json:"node_rank,omitempty"`
	Node     string `json:"node,omitempty"`
	// Job is the job's name or number in its scheduler or launcher. Attempt counts restarts from 0.
	Job     string `json:"job,omitempty"`
	Attempt *int   `json:"attempt,omitempty"`
	// SlurmJob is the Slurm job number, also if Job is a launcher's name. SlurmStep is the job
	// step: a number, "batch", "extern" or "interactive". SlurmTask counts the step's tasks on the
	// node from 0. SlurmArray is the array job as JOB_INDEX.
	SlurmJob   string `json:"slurm_job,omitempty"`
	SlurmStep  string `json:"slurm_step,omitempty"`
	SlurmTask  *int   `json:"slurm_task,omitempty"`
	SlurmArray string `json:"slurm_array,omitempty"`
	// Cluster is Slurm's name of the cluster.
	Cluster string `json:"cluster,omitempty"`
	// Pod and Namespace are Kubernetes names; PodUID is the pod's UID with dashes.
	Pod       string `json:"pod,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	PodUID    string `json:"pod_uid,omitempty"`
	// Sources has the origin of each known value by JSON key: "env RANK", "cgroup".
	Sources map[string]string `json:"sources,omitempty"`
}

// Known reports whether any value is known.
func (i *Identity) Known() bool { return len(i.Sources) > 0 }
